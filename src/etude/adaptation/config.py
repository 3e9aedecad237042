"""The settings of learning to adapt."""

import dataclasses
from typing import Literal

from etude.core.config import Surrogate
from etude.envs.catalogue import TRIALS
from etude.errors import UserError
from etude.settings import Settings, check
from etude.training.config import Schedule

Algorithm = Literal["maml", "emaml", "rl2", "erl2"]
GRADIENT_BASED = ("maml", "emaml")
Cell = Literal["gru", "lstm"]
"""Of a recurrent policy."""

RECURRENT: Settings = dict(
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
BY_GRADIENT: Settings = dict(
    steps=2_000_000,
    batch=32,
    episodes=20,
    epochs=4,
    torso=(64, 64),
    inner_steps=1,
    inner_rate=5.0,
    learn_rates=False,
    surrogate="lvc",
    first_order=False,
    exploration=None,
    adaptations=1,
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
    """Passes over each batch (4)."""
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
    """rl2, erl2: whether to learn from the mean of each reward, which is less noisy, if the tasks
    know it (bandit, tabular_mdp); the agent still sees the reward drawn."""
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
    """emaml: weight of its exploration term (1; its exact weight is --episodes); 0 is MAML."""
    adaptations: int | None = None
    """maml, emaml: how often each task of a batch is adapted to, each time from episodes of its own
    (1). From 2 on, emaml compares outcomes on the same task, so that easy tasks are not credited to
    whoever explored them."""
    log_every: int | None = None
    """Updates per line of metrics."""

    def __post_init__(self):
        check(
            self,
            count="steps seeds test_tasks batch episodes epochs hidden minibatches inner_steps "
            "adaptations log_every",
            widths="torso",
            seed="seed",
            cost="train_tasks explore entropy_cost exploration",
            positive="learning_rate clip inner_rate",
            share="discount td_lambda",
        )
        if self.tasks.startswith(TRIALS):
            plain = self.tasks.removeprefix(TRIALS)
            raise UserError(f"Trials are made of --tasks: name {plain} without {TRIALS}.")

    @property
    def by_gradient(self) -> bool:
        return self.algo in GRADIENT_BASED

    @property
    def _defaults(self) -> tuple[Settings, Settings]:
        """Those of the algorithm's own family, and those of the other."""
        return (BY_GRADIENT, RECURRENT) if self.by_gradient else (RECURRENT, BY_GRADIENT)

    def filled(self) -> "AdaptConfig":
        """With every gap filled that the algorithm has."""
        own, other = self._defaults
        given = {k: v for k, v in vars(self).items() if v is not None}
        for name in other:
            if name not in own and given.get(name, False) is not False:
                raise UserError(f"{self.algo} has no setting {name}.")
        values = own | given
        if self.by_gradient:
            depending: Settings = dict(exploration=1.0 if self.algo == "emaml" else 0.0)
        else:
            depending = dict(explore=min(3, values["episodes"] - 1))
        values |= depending | given
        (_check_gradient if self.by_gradient else _check_recurrent)(values)
        return AdaptConfig(**values)

    def settings(self) -> Settings:
        """Those that the algorithm has, by name."""
        own, other = self._defaults
        return {k: v for k, v in dataclasses.asdict(self).items() if k in own or k not in other}


def _check_gradient(values: Settings) -> None:
    if values["algo"] == "maml" and values["exploration"] > 0:
        raise UserError("MAML with an exploration term is E-MAML: --algo emaml.")
    if values["exploration"] > 0 and values["batch"] < 2:
        raise UserError("E-MAML compares the outcomes of tasks: --batch must be at least 2.")
    if values["batch"] % values["adaptations"]:
        raise UserError(
            f"--batch {values['batch']} does not make tasks with {values['adaptations']} "
            "--adaptations each."
        )


def _check_recurrent(values: Settings) -> None:
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
