"""The settings of a training run, and the sentences for those that make no sense."""

import dataclasses
from typing import Any, Literal, TypeVar, cast

from etude.core.agent import NetworkConfig
from etude.core.optim import Optimiser
from etude.errors import UserError
from etude.settings import SEED_RANGE, check_types, is_cost, is_count, is_positive, is_seed, require

Config = TypeVar("Config")
Schedule = Literal["constant", "cosine"]
NETWORK = ("torso", "conv", "model", "head", "memory", "memory_size")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of a run. What is left out comes from the preset for its environment and rule."""

    env: str = "catch"
    """Environment, with settings if any: catch, catch:rows=5,columns=5, gymnax/CartPole-v1, or your
    own as module:Class. `etude envs` lists them."""
    rule: str = "disco103"
    """Update rule, with settings if any: disco103, actor_critic, actor_critic:discount=0.9,
    policy_gradient, disco, or a rule file. `etude rules` lists them."""
    steps: int | None = None
    """Environment steps of each seed, all its environments together."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int = 1
    """Number of agents trained side by side in one program, each from its own random key."""
    batch: int | None = None
    """Trajectories in each update."""
    rollout: int | None = None
    """Transitions in each trajectory."""
    replay_share: float | None = None
    """Share of each batch drawn from replay; 0 is pure on-policy. The rest of the batch is new, one
    trajectory from each parallel environment."""
    replay_capacity: int | None = None
    """Trajectories kept for replay."""
    learning_rate: float | None = None
    """Step size of the agent's optimiser."""
    schedule: Schedule | None = None
    """How the learning rate goes on after the warm-up: constant, or along a cosine to 0."""
    warmup: int | None = None
    """Environment steps over which the learning rate rises from 0."""
    weight_decay: float | None = None
    """Decoupled weight decay (AdamW)."""
    max_update: float | None = None
    """Each entry of the optimiser's normalised step is clipped to ± this."""
    torso: tuple[int, ...] | None = None
    """Widths of the torso's layers."""
    conv: tuple[int, ...] | None = None
    """Channels of residual convolution stages for image observations; none by default."""
    model: int | None = None
    """Size of the action model's LSTM."""
    head: int | None = None
    """Hidden width of the action model's heads."""
    optimiser: Optimiser | None = None
    """Of the agent: adam, rmsprop or sgd."""
    epochs: int | None = None
    """Passes over each batch."""
    minibatches: int | None = None
    """Equal parts that each pass divides the batch's trajectories into."""
    memory: Literal["none", "gru", "lstm"] | None = None
    """Recurrent cell with which the agent remembers its episode."""
    memory_size: int | None = None
    """Units of that memory."""

    learn_rule: bool | None = None
    """Whether the rule itself learns while the agent does; by default frodo and metagrad do when
    they are named, and no rule from a file does."""
    inner_updates: int | None = None
    """Agent updates between two updates of a rule that learns."""
    outer: str | None = None
    """The rule whose loss the learning rule is to lower, with its own γ and λ:
    actor_critic:discount=0.99,td_lambda=1."""
    outer_rollout: int | None = None
    """Transitions in each trajectory for that loss; by default as in the others."""
    meta_optimiser: Optimiser | None = None
    """Of the rule that learns: adam, rmsprop or sgd."""
    meta_learning_rate: float | None = None
    """Step size of the rule that learns."""
    revise: float | None = None
    """How much a learning rule also answers for the agent's outer loss before its updates
    (the weight b₁, divided by the outer loss); 0 for not at all."""
    log_every: int | None = None
    """Updates between two lines of metrics."""

    def __post_init__(self):
        check_types(self)
        numbers = "steps seeds batch rollout replay_capacity model head memory_size log_every"
        require(self, numbers, is_count, "at least 1")
        numbers = "epochs minibatches inner_updates outer_rollout"
        require(self, numbers, is_count, "at least 1")
        require(self, "seed", is_seed, SEED_RANGE)
        require(self, "warmup weight_decay revise", is_cost, "0 or more")
        rates = "learning_rate meta_learning_rate max_update"
        require(self, rates, is_positive, "a positive number")
        require(self, "replay_share", lambda x: 0 <= x < 1, "at least 0 and below 1")
        require(self, "torso", lambda x: x and is_count(x), "one or more positive widths")
        require(self, "conv", is_count, "positive numbers of channels")

    @property
    def network(self) -> NetworkConfig:
        given = {name: getattr(self, name) for name in NETWORK}
        return NetworkConfig(**{k: v for k, v in given.items() if v is not None})

    @property
    def num_envs(self) -> int:
        """Parallel environments: the new trajectories of a batch."""
        assert self.batch is not None and self.replay_share is not None
        return max(1, round(self.batch * (1.0 - self.replay_share)))

    @property
    def steps_per_update(self) -> int:
        """Environment steps of an update; where the rule learns, of one of its updates."""
        assert self.rollout is not None
        if not self.learn_rule:
            return self.num_envs * self.rollout
        assert self.inner_updates is not None and self.outer_rollout is not None
        return self.num_envs * (self.inner_updates * self.rollout + self.outer_rollout)

    @property
    def filling_rollouts(self) -> int:
        """Rollouts played before the first update, so that replay holds a batch."""
        assert self.batch is not None and self.replay_capacity is not None
        if self.batch == self.num_envs:
            return 0
        return max(1, min(self.batch, self.replay_capacity) // self.num_envs)

    @property
    def updates(self) -> int:
        assert self.steps is not None
        return max(1, round(self.steps / self.steps_per_update) - self.filling_rollouts)

    @property
    def agent_updates(self) -> int:
        """How often an agent is updated: where the rule learns, several times in each update."""
        return self.updates * self.updates_per_update

    @property
    def updates_per_update(self) -> int:
        assert self.inner_updates is not None or not self.learn_rule
        return (self.inner_updates or 1) if self.learn_rule else 1

    def steps_after(self, updates: int) -> int:
        """Environment steps up to and including an update, those that fill replay among them."""
        return (self.filling_rollouts + updates) * self.steps_per_update


def lists_to_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Settings hold tuples, JSON has lists, and users write either."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def from_json(kind: type[Config], fields: dict[str, Any]) -> Config:
    """A config (a dataclass) as it was saved."""
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := fields.keys() - known:
        raise UserError(
            f"The saved config holds settings this version lacks: {', '.join(unknown)}."
        )
    try:
        return kind(**lists_to_tuples(fields))
    except (TypeError, ValueError) as error:  # a file that someone mangled
        raise UserError(f"The saved config makes no sense: {error}.") from None


def lengthened(config: Config, steps: int | None, path: str) -> Config:
    """The settings of a run in a folder that is to go on to so many steps, if that is given."""
    run = cast(Any, config)
    if steps is None or steps == run.steps:
        return config
    if run.schedule == "cosine":
        raise UserError("A cosine schedule ends where it ends: --steps cannot be changed.")
    if steps < run.steps:
        raise UserError(f"{path} is a run of {run.steps} steps; --steps can only add to it.")
    return dataclasses.replace(run, steps=steps)
