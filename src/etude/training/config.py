"""The settings of a training run: what is asked (`TrainRequest`, gaps allowed), what will be done
(`TrainPlan`, no gaps), and the sentences for what makes no sense. Nothing here needs JAX."""

import dataclasses
from typing import Any, Literal, TypeVar, cast

from etude.core.config import Memory, NetworkConfig, Optimiser
from etude.errors import UserError, reason
from etude.settings import (
    SEED_RANGE,
    check_types,
    is_cost,
    is_count,
    is_positive,
    is_seed,
    lists_to_tuples,
    require,
)

Config = TypeVar("Config")
Schedule = Literal["constant", "cosine"]


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """What is asked of a training run. Anything left out comes from the rule's file, the preset for
    the environment and rule, or a default; --dry-run shows every value and where it comes from."""

    env: str | None = None
    """Environment, with settings if any: catch, catch:rows=5,columns=5, gymnax/CartPole-v1, or your
    own as module:Class. `etude envs` lists them."""
    rule: str | None = None
    """Update rule, with settings if any: disco103, actor_critic, actor_critic:discount=0.9, ppo,
    policy_gradient, disco, a rule file, or your own as module:Class. `etude rules` lists them."""
    steps: int | None = None
    """Environment steps per seed, over all its parallel environments."""
    seed: int | None = None
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int | None = None
    """Number of agents trained side by side in one program, each from its own random key."""
    batch: int | None = None
    """Trajectories per update."""
    rollout: int | None = None
    """Transitions per trajectory."""
    replay_share: float | None = None
    """Fraction of each batch drawn from replay; 0 is purely on-policy. The rest of the batch is
    new, one trajectory per parallel environment."""
    replay_capacity: int | None = None
    """Trajectories kept for replay."""
    epochs: int | None = None
    """Passes over each batch; the rule's targets are computed once per batch."""
    minibatches: int | None = None
    """Equal parts that each epoch splits the batch into, with one optimiser step per part."""
    learning_rate: float | None = None
    """Step size of the agent's optimiser."""
    schedule: Schedule | None = None
    """Learning rate after the warm-up: constant, or decaying to 0 along a cosine."""
    warmup: int | None = None
    """Environment steps over which the learning rate rises from 0."""
    weight_decay: float | None = None
    """Decoupled weight decay (AdamW)."""
    max_update: float | None = None
    """Each entry of the optimiser's normalised step is clipped to ± this value."""
    torso: tuple[int, ...] | None = None
    """Widths of the torso's layers."""
    conv: tuple[int, ...] | None = None
    """Channels of residual convolution stages for image observations."""
    model: int | None = None
    """Size of the action model's LSTM."""
    head: int | None = None
    """Hidden width of the action model's heads."""
    memory: Memory | None = None
    """Recurrent cell that lets the agent remember earlier observations: none, gru or lstm."""
    memory_size: int | None = None
    """Units of the recurrent cell."""
    memory_gate: bool | None = None
    """Whether what is read from memory is multiplied by a gate computed from the observation; suits
    observations of few symbols."""
    optimiser: Optimiser | None = None
    """The agent's optimiser: adam, rmsprop or sgd."""

    learn_rule: bool | None = None
    """Whether the rule itself learns while the agent does."""
    inner_updates: int | None = None
    """Agent updates per update of a rule that learns."""
    outer: str | None = None
    """The reference rule, with its own γ and λ, whose loss a rule that learns minimises:
    actor_critic:discount=0.99,td_lambda=1."""
    outer_rollout: int | None = None
    """Transitions per trajectory for the outer loss."""
    meta_optimiser: Optimiser | None = None
    """Optimiser of a rule that learns: adam, rmsprop or sgd."""
    meta_learning_rate: float | None = None
    """Step size of a rule that learns."""
    revise: float | None = None
    """Weight, for a rule that learns, of the agent's outer loss before each update (b₁, divided by
    the outer loss); 0 turns the term off."""
    log_every: int | None = None
    """Updates per line of metrics."""

    def __post_init__(self):
        check_types(self)
        _check_training(self)
        _check_online(self)

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked for, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def _check_training(settings: "TrainRequest | TrainPlan") -> None:
    numbers = "steps seeds batch rollout epochs minibatches replay_capacity model head memory_size"
    require(settings, f"{numbers} log_every", is_count, "at least 1")
    require(settings, "seed", is_seed, SEED_RANGE)
    require(settings, "warmup weight_decay", is_cost, "0 or more")
    require(settings, "learning_rate max_update", is_positive, "a positive number")
    require(settings, "replay_share", lambda x: 0 <= x < 1, "at least 0 and below 1")
    require(settings, "torso", lambda x: x and is_count(x), "one or more positive widths")
    require(settings, "conv", is_count, "positive numbers of channels")


def _check_online(settings: "TrainRequest | OnlinePlan") -> None:
    require(settings, "inner_updates outer_rollout", is_count, "at least 1")
    require(settings, "meta_learning_rate", is_positive, "a positive number")
    require(settings, "revise", is_cost, "0 or more")


@dataclasses.dataclass(frozen=True)
class OnlinePlan:
    """How a rule learns while its agents do. The fields are those of `TrainRequest`."""

    inner_updates: int
    outer: str
    outer_rollout: int
    meta_optimiser: Optimiser
    meta_learning_rate: float
    revise: float

    def __post_init__(self):
        check_types(self)
        _check_online(self)


ONLINE_SETTINGS = tuple(field.name for field in dataclasses.fields(OnlinePlan))

LATER: dict[str, Any] = dict(
    epochs=1, minibatches=1, memory="none", memory_size=128, memory_gate=False
)
"""Settings that folders of earlier versions lack, with what was so at the time."""


@dataclasses.dataclass(frozen=True)
class TrainPlan:
    """What a training run does, without a gap. The fields are those of `TrainRequest`."""

    env: str
    rule: str
    steps: int
    seed: int
    seeds: int
    batch: int
    rollout: int
    replay_share: float
    replay_capacity: int
    epochs: int
    minibatches: int
    learning_rate: float
    schedule: Schedule
    warmup: int
    weight_decay: float
    max_update: float
    torso: tuple[int, ...]
    conv: tuple[int, ...]
    model: int
    head: int
    memory: Memory
    memory_size: int
    memory_gate: bool
    optimiser: Optimiser
    log_every: int
    online: OnlinePlan | None
    """How the rule learns, if it does."""

    def __post_init__(self):
        check_types(self)
        _check_training(self)
        if self.batch % self.minibatches:
            raise UserError(
                f"--batch {self.batch} does not make {self.minibatches} equal --minibatches."
            )

    @property
    def learn_rule(self) -> bool:
        return self.online is not None

    @property
    def network(self) -> NetworkConfig:
        return NetworkConfig(
            torso=self.torso,
            conv=self.conv,
            model=self.model,
            head=self.head,
            memory=self.memory,
            memory_size=self.memory_size,
            gated=self.memory_gate,
        )

    @property
    def num_envs(self) -> int:
        """Parallel environments: the new trajectories of a batch."""
        return max(1, round(self.batch * (1.0 - self.replay_share)))

    @property
    def steps_per_update(self) -> int:
        """Environment steps of an update; where the rule learns, of one of its updates."""
        if self.online is None:
            return self.num_envs * self.rollout
        window = self.online.inner_updates * self.rollout + self.online.outer_rollout
        return self.num_envs * window

    @property
    def filling_rollouts(self) -> int:
        """Rollouts played before the first update, so that replay holds a batch."""
        if self.batch == self.num_envs:
            return 0
        return max(1, min(self.batch, self.replay_capacity) // self.num_envs)

    @property
    def updates(self) -> int:
        return max(1, round(self.steps / self.steps_per_update) - self.filling_rollouts)

    @property
    def agent_updates(self) -> int:
        """How often an agent is updated: where the rule learns, several times in each update."""
        return self.updates * self.updates_per_update

    @property
    def updates_per_update(self) -> int:
        return 1 if self.online is None else self.online.inner_updates

    def steps_after(self, updates: int) -> int:
        """Environment steps up to and including an update, those that fill replay among them."""
        return (self.filling_rollouts + updates) * self.steps_per_update

    def settings(self) -> dict[str, Any]:
        """All of it flat, as in `config.json`; None for what only a rule that learns has."""
        fields = dataclasses.asdict(self)
        online = fields.pop("online") or dict.fromkeys(ONLINE_SETTINGS)
        return fields | {"learn_rule": self.learn_rule} | online

    @staticmethod
    def of(settings: dict[str, Any]) -> "TrainPlan":
        """The plan with these settings, which are flat."""
        settings = lists_to_tuples(settings)
        online = {name: settings.pop(name, None) for name in ONLINE_SETTINGS}
        learns = settings.pop("learn_rule")
        return TrainPlan(**settings, online=OnlinePlan(**online) if learns else None)

    @staticmethod
    def from_saved(settings: dict[str, Any]) -> "TrainPlan":
        """The plan in a `config.json`, which someone may have mangled."""
        settings = LATER | settings
        names = {field.name for field in dataclasses.fields(TrainRequest)}
        _refuse_unknown(settings, names)
        if missing := names - settings.keys() - {*ONLINE_SETTINGS}:
            raise UserError(f"The saved config makes no sense: it lacks {min(missing)}.")
        try:
            return TrainPlan.of(settings)
        except (TypeError, ValueError, UserError) as error:
            raise UserError(f"The saved config makes no sense: {reason(error)}") from None


def from_json(kind: type[Config], fields: dict[str, Any]) -> Config:
    """A config (a dataclass) as it was saved."""
    _refuse_unknown(fields, {f.name for f in dataclasses.fields(kind)})  # type: ignore[arg-type]
    try:
        return kind(**lists_to_tuples(fields))
    except (TypeError, ValueError, UserError) as error:  # a file that someone mangled
        raise UserError(f"The saved config makes no sense: {reason(error)}") from None


def _refuse_unknown(fields: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(fields.keys() - known):
        raise UserError(
            f"The saved config holds settings this version lacks: {', '.join(unknown)}."
        )


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
