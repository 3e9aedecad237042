"""The settings of learning to adapt."""

import dataclasses
from typing import Any, Literal

from etude.core.config import Surrogate
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
    """Settings of learning to adapt. Some defaults depend on the algorithm."""

    algo: Algorithm = "rl2"
    """maml, emaml (policy-gradient steps from a learned start); rl2, erl2 (an agent with memory,
    trained on trials)."""
    tasks: str = "krazy_world"
    """Distribution of tasks: krazy_world, maze, bandit, tabular_mdp, or your own as module:Class,
    with settings if any."""
    steps: int | None = None
    """Environment steps per seed (2,000,000), rounded to whole updates."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int = 1
    """Number of policies trained side by side in one program."""
    train_tasks: int = 0
    """Number of tasks to learn from, drawn once; 0 draws fresh ones for every update."""
    test_tasks: int = 64
    """Number of test tasks, which are never learned from; every update is tested on them."""
    batch: int | None = None
    """Tasks per update (64; maml and emaml: 32)."""
    episodes: int | None = None
    """Episodes per task: those of a trial (5), or those that each adaptation step uses (20)."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    schedule: Schedule = "constant"
    """Step size over the run: constant, or decaying to 0 along a cosine."""
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.95
    """λ of the advantages."""
    clip: float = 0.2
    """PPO: how far from 1 the ratio of the new policy to the one that acted may go."""
    epochs: int | None = None
    """Passes over each batch (4; with --outer pg: 1)."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""

    cell: Cell | None = None
    """rl2, erl2: recurrent cell, gru (the default) or lstm."""
    hidden: int | None = None
    """rl2, erl2: units of the recurrent cell, and width of the torso (64)."""
    associative: bool = False
    """rl2, erl2: whether products of observation, action and reward are observed and the memory is
    gated; learns faster where observations are of few symbols."""
    expected: bool = False
    """rl2, erl2: whether to learn from the mean of each reward where the task knows it, which is
    less noisy; the agent still sees the reward drawn."""
    explore: int | None = None
    """rl2, erl2: how many of a trial's first episodes are for exploring (3): neither counts them in
    its score, and erl2 does not learn from their rewards."""
    minibatches: int | None = None
    """rl2, erl2: equal parts that each epoch splits the batch into (2)."""

    torso: tuple[int, ...] | None = None
    """maml, emaml: widths of the policy's layers (64 64)."""
    inner_steps: int | None = None
    """maml, emaml: adaptation steps (1)."""
    inner_rate: float | None = None
    """maml, emaml: step size of adaptation (5; smaller where episodes are long and advantages
    noisy, as in mazes)."""
    learn_rates: bool = False
    """maml, emaml: whether each part of the policy learns its own step size, starting from
    --inner-rate."""
    surrogate: Surrogate | None = None
    """maml, emaml: loss of the adaptation steps, plain, lvc (the default) or dice."""
    first_order: bool = False
    """maml, emaml: whether to drop second derivatives (first-order MAML)."""
    exploration: float | None = None
    """emaml: weight of its exploration term (1); 0 is MAML."""
    outer: Outer | None = None
    """maml, emaml: how the start is learned, ppo (the default) or pg (policy gradient, one
    epoch)."""
    log_every: int | None = None
    """Updates per line of metrics."""

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
