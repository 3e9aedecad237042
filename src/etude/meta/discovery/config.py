"""The settings of a discovery run."""

import dataclasses
import math
from typing import Literal

from etude.core.config import ConvKind, Memory
from etude.errors import UserError
from etude.meta.config import Collect, EstimatorKind, Recording, Shaping
from etude.meta.discovery.life_ranges import Lives
from etude.settings import as_bytes, check, flag, is_count, require, split_specs
from etude.text import count
from etude.training.config import TrainPlan, require_memory
from etude.training.presets import BASE

Preset = Literal["laptop", "notebook", "paper"]
MetaAverage = Literal["updates", "gradients"]
"""What is averaged over agents: the steps of an Adam for each, or gradients for one Adam."""


@dataclasses.dataclass(frozen=True)
class DiscoverConfig:
    """Settings of a discovery run."""

    preset: Preset = "laptop"
    """What settings are if nothing else says: those that learn on a laptop, those of the released
    notebook, or those of the DiscoRL paper, whose 128 agents play 57 Atari games."""
    envs: str = "catch:rows=5,columns=5"
    """Environments of the population, separated by commas: catch:rows=5,columns=5,catch:rows=6.
    They may differ in observations and actions, and in where they run: in JAX, or in a simulator
    outside (gym/CartPole-v1)."""
    agents: int = 8
    """Agents in the population, assigned to the environments in turn."""
    part: tuple[int, ...] = ()
    """Agents of an environment that run as one program and are placed together: one number for all
    environments, or one for each. Without any, all of an environment."""
    memory_limit: str = ""
    """Memory that the population may take in one process, as 8GB: parts (--part) are as large as
    fits, by the compiler's own figures. Without any, as much as it takes."""
    lives: str = ""
    """Ranges in which lives differ, log-uniform: learning_rate=1e-3..1e-2 and entropy=1e-3..0.1,
    drawn with each life; batch=16..64 and width=32..128 (of each layer of --torso), drawn for each
    environment of --envs, where the same one may then be named several times."""
    draw_tasks: bool = True
    """Whether each life has a task of its own in environments that can draw tasks, as has each
    agent of a check; if not, all have the one that training by the same name has."""
    meta_steps: int = 800
    """Updates of the rule."""
    from_: str | None = None
    """Start from this rule (disco103, a rule file, a run, or your own as module:Class) instead of a
    random one."""
    size: Literal["tiny", "small", "paper"] = "tiny"
    """Size of a random rule's meta-network."""
    rule_settings: str = ""
    """Further settings of a random rule, with commas between: aux_cost=0,meta_rnn=false; `etude
    rules` lists those of `disco`."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""

    inner_updates: int = 20
    """Agent updates per window; the meta-gradient goes through all of them."""
    stride: int = 0
    """Agent updates that are new in each window: with fewer than --inner-updates, windows overlap,
    and the updates that were made before are made again on the same batches, under the rule as it
    is now; 0: all of them."""
    rollout: int = 8
    """Transitions per training trajectory."""
    batch: int = 32
    """Trajectories per agent update."""
    replay: float = 0.0
    """Fraction of each batch drawn from replay; the rest is new, one per parallel environment."""
    replay_capacity: int = 1024
    """Trajectories kept for replay."""
    validation_rollout: int = 16
    """Transitions per validation trajectory, on which the updated agent is judged."""
    validation_batch: int = 64
    """Validation trajectories per meta-step."""
    budgets: tuple[int, ...] = (320_000, 160_000, 80_000, 40_000)
    """Lifetimes in environment steps. Each new agent draws one, with probability proportional to
    1/lifetime. Without any, agents are never reset."""

    learning_rate: float = 1e-2
    """Step size of the agents' Adam."""
    torso: tuple[int, ...] = (128,)
    """Widths of the agents' torso."""
    conv: tuple[int, ...] = ()
    """Channels of convolutions, for all observations of height × width (× channels). Without any,
    images of bytes from 32 × 32 pixels on, and grids of symbols from 8 × 8 on, are convolved with
    16 32 32 channels; all else is flattened."""
    conv_kind: ConvKind = "residual"
    """Kind of convolution: residual stages, one per number of channels, or the three layers of the
    classic network for Atari, with 32 64 64 channels unless --conv has three others."""
    embedding: int = 16
    """Size of the vector that stands for each symbol, where symbols are observed."""
    frame_stack: int = 1
    """Latest observations of an episode that the agents' networks see together."""
    model: int = 32
    """Size of the agents' action model."""
    head: int = 32
    """Hidden width of the action model's heads."""
    memory: Memory = "none"
    """Recurrent cell that lets the agents remember earlier observations: none, gru or lstm."""
    memory_size: int = 128
    """Units of the recurrent cell."""
    memory_gate: bool = False
    """Whether what is read from memory is multiplied by a gate computed from the observation."""

    meta_learning_rate: float = 1e-3
    """Step size of Adam on the rule."""
    meta_average: MetaAverage = "updates"
    """What is averaged over the agents: updates, those of an Adam for each agent's meta-gradient
    (the paper), so that none outweighs the others; or gradients, for one Adam on their mean (the
    released notebook)."""
    meta_schedule: Literal["constant", "cosine"] = "cosine"
    """Step size of the rule over the run: constant, or decaying to 0 along a cosine."""
    meta_clip: float = 0.02
    """Maximum norm of each agent's meta-gradient, or of their mean where that is what Adam sees; 0:
    no maximum. A newborn agent's is many times larger than the others', and would slow Adam down
    for long; with lifetimes of millions of steps (the paper), 1 is enough."""
    meta_entropy_cost: float = 0.1
    """Weight of the updated policy's entropy in the meta-loss. Over a few updates, a confident
    policy always looks better; with 0.01 (the paper, with longer windows and lifetimes), rules
    found here make agents stop exploring too early."""
    relative_entropy: bool = False
    """Whether the meta-loss counts entropy as a share of its maximum, log A, so that one weight
    suits environments with different numbers of actions."""
    meta_value: bool = True
    """Whether a value function is learned for the meta-loss; without, its advantages are discounted
    returns up to the end of the validation rollout."""
    value_torso: tuple[int, ...] = (128,)
    """Widths of the meta-value network."""
    value_discount: float = 0.99
    """γ of the meta-value function."""
    value_lambda: float = 0.95
    """λ of the meta-value function's V-trace."""
    value_learning_rate: float = 3e-3
    """Step size of the meta-value function."""
    collect: Collect = "fresh"
    """Which agent collects the experience of a window: fresh, for each update and for validation
    the agent as it is at that point; ahead, the agent before the first update collects everything
    (as the released notebook does with two updates; with ten it ruins learning)."""
    record: Recording = "each"
    """Which states are recorded for the meta-gradient: the one before each update (each), or before
    every √N-th update (nested: less memory, but the ones in between are recomputed)."""
    estimator: EstimatorKind = "gradient"
    """How the rule is told where to go: gradient, backward through the window's updates; es, by
    evolution strategies, from how differently perturbed rules do in the same window; mixed, by
    evolution where the rule has its schedule, and by gradient for the rest."""
    es_pairs: int = 4
    """Evolution: antithetic pairs of perturbed rules per agent and meta-step."""
    es_deviation: float = 0.02
    """Evolution: standard deviation of the noise on each number of the rule."""
    es_fitness: Shaping = "rank"
    """Evolution: what is made of an agent's fitnesses, the rewards per episode in its window: their
    ranks, standardised numbers (standard), or nothing (raw)."""
    mixed_mode: bool = True
    """Whether inner gradients are differentiated forward over reverse, which is cheaper."""

    env_workers: int = 0
    """Processes that run a simulator outside JAX, for training and for validation each; 0 runs it
    in this one."""
    step_timeout: float = 60.0
    """Seconds after which a step of a simulator outside JAX counts as hanging."""

    held_out: str = ""
    """Additional environments, used in the periodic check only."""
    select_on: str = ""
    """Environments, in neither list, that choose the rule to keep: that whose agents have the
    largest area under their learning curves there. Without any, final returns in the population's
    own environments choose."""
    check_every: int = 100
    """Meta-steps between checks, each of which trains fresh agents under the rule; 0: no checks."""
    patience: int = 0
    """Checks in a row without a better rule after which the run ends; 0: it goes on to
    --meta-steps."""
    check_updates: int = 200
    """Agent updates per check."""
    check_seeds: int = 8
    """Fresh agents per environment in a check."""
    log_every: int = 5
    """Meta-steps per line of metrics."""

    def __post_init__(self):
        check(
            self,
            count="agents meta_steps inner_updates rollout batch replay_capacity model head "
            "validation_rollout validation_batch memory_size embedding "
            "check_updates check_seeds log_every es_pairs",
            seed="seed",
            part="replay",
            frames="frame_stack",
            channels="conv",
            positive="learning_rate meta_learning_rate value_learning_rate step_timeout "
            "es_deviation",
            whole="env_workers stride patience",
            share="value_discount value_lambda",
            cost="meta_entropy_cost meta_clip check_every",
        )
        require(self, "torso value_torso", lambda x: x and is_count(x), "positive")
        require(self, "budgets part", is_count, "positive")
        require_memory(self.memory, vars(self))
        if self.from_ is not None and self.size != DiscoverConfig.size:
            raise UserError(f"--size is for a random rule: {self.from_} has a size of its own.")
        if self.from_ is not None and self.rule_settings:
            raise UserError(
                "--rule-settings is for a random rule: settings of another follow its name, as in "
                "--from disco103:aux_cost=0."
            )
        self._check_stride()
        self._check_selection()
        if self.estimator != "gradient" and self.collect == "ahead":
            raise UserError(
                "Evolution needs --collect fresh: what is collected ahead does not depend on the "
                "rule."
            )
        if not self.env_names:
            raise UserError("--envs must name at least one environment.")
        several = [] if self.ranges.differ_in_shape else self.env_names
        if twice := [x for x in several if several.count(x) > 1]:
            raise UserError(
                f"--envs names {twice[0]} twice; with more --agents each environment has more."
            )
        if self.agents < len(self.env_names):
            raise UserError(
                f"--agents must be at least {len(self.env_names)}, one for each environment."
            )

        self._check_parts()

    def _check_parts(self) -> None:
        if self.memory_limit:
            as_bytes(self.memory_limit)
        if len(self.part) not in (0, 1, number := len(self.env_names)):
            raise UserError(
                f"--part has {len(self.part)} numbers: there should be one, or one for each of "
                f"{count(number, 'environment')}."
            )

    def _check_stride(self) -> None:
        if self.stride > self.inner_updates:
            raise UserError(
                f"--stride {self.stride} would leave out updates: a window has "
                f"{self.inner_updates} (--inner-updates)."
            )
        if self.overlap and (self.record, self.collect) != ("each", "fresh"):
            raise UserError("Windows that overlap (--stride) need --record each, --collect fresh.")

    @property
    def overlap(self) -> int:
        """Updates of a window that belonged to the last one already."""
        return self.inner_updates - self.stride if self.stride else 0

    def meta_learning_rate_at(self, meta_step: int) -> float:
        """The step size of the rule in one meta-step, the first being 0."""
        if self.meta_schedule == "constant":
            return self.meta_learning_rate
        return self.meta_learning_rate * 0.5 * (1 + math.cos(math.pi * meta_step / self.meta_steps))

    @property
    def ranges(self) -> Lives:
        return Lives.parse(self.lives)

    @property
    def env_names(self) -> list[str]:
        return split_specs(self.envs)

    def part_of(self, env: int) -> int:
        """How many agents of an environment, given by its number, run as one program; 0: all."""
        return self.part[env % len(self.part)] if self.part else 0

    @property
    def distinct_envs(self) -> list[str]:
        return list(dict.fromkeys(self.env_names))

    @property
    def envs_in_words(self) -> str:
        names = self.env_names
        return ", ".join(names) if len(names) <= 8 else f"{len(names)} environments"

    @property
    def held_out_names(self) -> list[str]:
        return split_specs(self.held_out)

    @property
    def select_on_names(self) -> list[str]:
        return split_specs(self.select_on)

    @property
    def every_name(self) -> list[str]:
        """Of all environments, whatever they are for."""
        return self.env_names + self.held_out_names + self.select_on_names

    def _check_selection(self) -> None:
        for name in ("select_on", "patience"):
            if getattr(self, name) and not self.check_every:
                raise UserError(f"{flag(name)} needs checks: --check-every above 0.")
        for where, names in (("--envs", self.env_names), ("--held-out", self.held_out_names)):
            if both := [x for x in self.select_on_names if x in names]:
                raise UserError(f"--select-on names {both[0]}, which {where} names too.")

    def training(self, env: str) -> TrainPlan:
        """How an agent of the population learns, as the plan of a training run."""
        own = dict(env=env, rule="discovered", log_every=1)
        outside = dict(lag=0, workers=self.env_workers, step_timeout=self.step_timeout)
        return TrainPlan.of(BASE | self.suggested | own | outside)

    @property
    def suggested(self) -> dict[str, object]:
        """The settings of training that a rule discovered here is used to."""
        names = "batch rollout replay_capacity learning_rate torso conv model head memory"
        names += " memory_size memory_gate conv_kind embedding frame_stack"
        fixed = dict(replay_share=self.replay, schedule="constant", max_update=1.0)
        return {**fixed, **{name: getattr(self, name) for name in names.split()}}
