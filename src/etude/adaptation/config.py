"""The settings of learning to adapt."""

import dataclasses
from typing import Any, Literal

from etude.errors import UserError
from etude.settings import (
    SEED_RANGE,
    check_types,
    is_cost,
    is_count,
    is_positive,
    is_seed,
    is_share,
    require,
)
from etude.training.config import Schedule

Algorithm = Literal["maml", "emaml", "rl2", "erl2"]
GRADIENT_BASED = ("maml", "emaml")
Outer = Literal["ppo", "pg"]
Cell = Literal["gru", "lstm"]
"""Of a recurrent policy."""
Surrogate = Literal["plain", "lvc", "dice"]
"""The loss of a step of adaptation."""

RECURRENT: dict[str, Any] = dict(
    steps=2_000_000,
    batch=64,
    episodes=5,
    epochs=4,
    cell="gru",
    hidden=64,
    associative=False,
    expected=False,
    explore=None,
    minibatches=2,
)
BY_GRADIENT: dict[str, Any] = dict(
    steps=2_000_000,
    batch=32,
    episodes=20,
    epochs=None,
    torso=(64, 64),
    inner_steps=1,
    inner_rate=5.0,
    learn_rates=False,
    surrogate="lvc",
    first_order=False,
    exploration=None,
    outer="ppo",
)
"""What is left out, by family; None if it depends on other settings. A setting that only one of
them has is refused by the other."""


@dataclasses.dataclass(frozen=True)
class AdaptConfig:
    """Settings of a run. What is left out depends on the algorithm."""

    algo: Algorithm = "rl2"
    """maml, emaml (policy gradient steps from a learned start), rl2, erl2 (a recurrent policy)."""
    tasks: str = "krazy_world"
    """Where tasks come from: krazy_world, maze, bandit, tabular_mdp, with settings if any."""
    steps: int | None = None
    """Environment steps of each seed (2,000,000), rounded to whole updates."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int = 1
    """Number of policies trained side by side in one program."""
    train_tasks: int = 0
    """Tasks to learn from, drawn once; 0 draws fresh ones for every update."""
    test_tasks: int = 64
    """Tasks that are never learned from, on which each update is tested."""
    batch: int | None = None
    """Tasks in each update (64; maml and emaml: 32)."""
    episodes: int | None = None
    """Of each task: those of a trial (5), or those that a step of adaptation learns from (20)."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    schedule: Schedule = "constant"
    """How the step size goes: constant, or along a cosine to 0."""
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.95
    """λ of the advantages."""
    clip: float = 0.2
    """How far PPO lets the policy go from the one that played."""
    epochs: int | None = None
    """Times that each batch is learned from (4; by policy gradient once)."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""

    cell: Cell | None = None
    """Of a recurrent policy: gru (unless one says) or lstm."""
    hidden: int | None = None
    """Size of its state (64)."""
    associative: bool = False
    """Whether it multiplies what belongs together; learns faster where observations are few."""
    expected: bool = False
    """Whether a recurrent policy is paid the mean of each reward where the task knows it, since
    luck teaches nothing; it still sees what was drawn."""
    explore: int | None = None
    """First episodes of a trial (3), which are not paid for (erl2) and not scored (both)."""
    minibatches: int | None = None
    """Parts into which an epoch of a recurrent policy divides the batch (2)."""

    torso: tuple[int, ...] | None = None
    """Widths of the layers of a policy that adapts by gradient (64 64)."""
    inner_steps: int | None = None
    """Steps of adaptation (1)."""
    inner_rate: float | None = None
    """Their step size (5; smaller where episodes are long and advantages noisy, as in mazes)."""
    learn_rates: bool = False
    """Whether each part of the policy learns a step size of its own, starting from that."""
    surrogate: Surrogate | None = None
    """Loss of the steps of adaptation: plain, lvc (unless one says) or dice."""
    first_order: bool = False
    """Whether the steps are taken as constants."""
    exploration: float | None = None
    """Weight of E-MAML's term (1); 0 is MAML."""
    outer: Outer | None = None
    """How the start is learned: ppo (unless one says), or pg (policy gradient, one epoch)."""
    log_every: int | None = None
    """Updates between two lines of metrics."""

    def __post_init__(self):
        check_types(self)
        numbers = (
            "steps seeds test_tasks batch episodes epochs hidden minibatches inner_steps torso"
        )
        require(self, f"{numbers} log_every", is_count, "at least 1")
        require(self, "torso", lambda x: x, "one or more widths")
        require(self, "seed", is_seed, SEED_RANGE)
        require(self, "train_tasks explore", lambda x: x >= 0, "0 or more")
        require(self, "learning_rate clip inner_rate", is_positive, "a positive number")
        require(self, "discount td_lambda", is_share, "from 0 to 1")
        require(self, "entropy_cost exploration", is_cost, "0 or more")

    @property
    def by_gradient(self) -> bool:
        return self.algo in GRADIENT_BASED

    def filled(self) -> "AdaptConfig":
        """With every gap filled that the algorithm has."""
        own, other = (BY_GRADIENT, RECURRENT) if self.by_gradient else (RECURRENT, BY_GRADIENT)
        for name in other:
            value = getattr(self, name)
            if name not in own and value is not None and value is not False:
                raise UserError(f"{self.algo} has no setting {name}.")
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values: dict[str, Any] = own | {k: v for k, v in given.items() if v is not None}
        if self.by_gradient:
            _fill(values, "exploration", 1.0 if self.algo == "emaml" else 0.0)
            _fill(values, "epochs", 1 if values["outer"] == "pg" else 4)
            _check_gradient(values)
        else:
            _fill(values, "explore", min(3, values["episodes"] - 1))
            _check_recurrent(values)
        return AdaptConfig(**values)

    def settings(self) -> dict[str, Any]:
        """Those that the algorithm has, by name."""
        own, other = (BY_GRADIENT, RECURRENT) if self.by_gradient else (RECURRENT, BY_GRADIENT)
        return {k: v for k, v in dataclasses.asdict(self).items() if k in own or k not in other}


def _fill(values: dict[str, Any], name: str, value: Any) -> None:
    if values[name] is None:
        values[name] = value


def _check_gradient(values: dict[str, Any]) -> None:
    if values["algo"] == "maml" and values["exploration"] > 0:
        raise UserError("MAML with an exploration term is E-MAML: --algo emaml.")
    if values["exploration"] > 0 and values["batch"] < 2:
        raise UserError("E-MAML compares the outcomes of tasks: --batch must be at least 2.")
    if values["outer"] == "pg" and values["epochs"] > 1:
        raise UserError("A policy gradient learns from a batch once: epochs must be 1.")


def _check_recurrent(values: dict[str, Any]) -> None:
    episodes, explore = values["episodes"], values["explore"]
    if explore >= episodes:
        raise UserError(
            f"A trial of {episodes} episodes cannot have {explore} to explore: nothing would be "
            "scored."
        )
    if values["batch"] % values["minibatches"]:
        raise UserError(
            f"--batch {values['batch']} does not make {values['minibatches']} equal --minibatches."
        )
