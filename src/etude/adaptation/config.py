"""The settings of learning to adapt."""

import dataclasses
from typing import Literal

from etude import checks
from etude.adaptation.maml import Surrogate
from etude.adaptation.rl2 import Cell
from etude.checks import require
from etude.errors import UserError

Algorithm = Literal["maml", "emaml", "rl2", "erl2"]
GRADIENT_BASED = ("maml", "emaml")
STEPS = 2_000_000


@dataclasses.dataclass(frozen=True)
class AdaptConfig:
    """Settings of a run. What is left out depends on the algorithm."""

    algo: Algorithm = "rl2"
    """maml, emaml (policy gradient steps from a learned start), rl2, erl2 (a recurrent policy)."""
    tasks: str = "krazy_world"
    """Where tasks come from: krazy_world, maze, bandit, tabular_mdp, with settings if any."""
    steps: int | None = None
    """Environment steps of each seed."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int = 1
    """Number of policies trained side by side in one program."""
    train_tasks: int = 0
    """Tasks to learn from, drawn once; 0 draws fresh ones for every update."""
    test_tasks: int = 64
    """Tasks that are never learned from, on which each update is tested."""
    batch: int = 32
    """Tasks in each update."""
    episodes: int | None = None
    """Of each task: those of a trial, or those that each step of adaptation learns from."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.95
    """λ of the advantages."""
    clip: float = 0.2
    """How far PPO lets the policy go from the one that played."""
    epochs: int = 4
    """Times that each batch is learned from; 1 is plain policy gradient."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""

    cell: Cell = "gru"
    """Of a recurrent policy: gru or lstm."""
    hidden: int = 64
    """Size of its state."""
    explore: int | None = None
    """First episodes of a trial, which are not paid for (erl2) and not scored (both)."""
    minibatches: int = 4
    """Parts into which an epoch of a recurrent policy divides the batch."""

    torso: tuple[int, ...] = (64, 64)
    """Widths of the layers of a policy that adapts by gradient."""
    inner_steps: int = 1
    """Steps of adaptation."""
    inner_rate: float = 0.1
    """Their step size."""
    learn_rates: bool = False
    """Whether each part of the policy learns a step size of its own, starting from that."""
    surrogate: Surrogate = "lvc"
    """Loss of the steps of adaptation: plain, lvc or dice."""
    first_order: bool = False
    """Whether the steps are taken as constants."""
    exploration: float | None = None
    """Weight of E-MAML's term; 0 is MAML."""
    log_every: int | None = None
    """Updates between two lines of metrics."""

    def __post_init__(self):
        checks.typed(self)
        numbers = (
            "steps seeds test_tasks batch episodes epochs hidden minibatches inner_steps torso"
        )
        require(self, f"{numbers} log_every", checks.counts, "at least 1")
        require(self, "seed", checks.seed, checks.SEED)
        require(self, "train_tasks explore", lambda x: x >= 0, "0 or more")
        require(self, "learning_rate clip inner_rate", checks.positive, "a positive number")
        require(self, "discount td_lambda", checks.share, "from 0 to 1")
        require(self, "entropy_cost exploration", checks.cost, "0 or more")

    @property
    def by_gradient(self) -> bool:
        return self.algo in GRADIENT_BASED

    def filled(self) -> "AdaptConfig":
        """With every gap filled."""
        episodes = self.episodes or (20 if self.by_gradient else 5)
        explore = min(3, episodes - 1) if self.explore is None else self.explore
        if not self.by_gradient:
            if explore >= episodes:
                raise UserError(
                    f"A trial of {episodes} episodes cannot have {explore} to explore: nothing "
                    "would be paid."
                )
            if self.batch % self.minibatches:
                raise UserError(
                    f"--batch {self.batch} does not make {self.minibatches} equal --minibatches."
                )
        exploration = self.exploration
        if exploration is None:
            exploration = 1.0 if self.algo == "emaml" else 0.0
        return dataclasses.replace(
            self,
            steps=self.steps or STEPS,
            episodes=episodes,
            explore=explore,
            exploration=exploration,
        )
