"""The settings of a training run: what is asked (`TrainRequest`, gaps allowed), what will be done
(`TrainPlan`, no gaps), and the sentences for what makes no sense. Nothing here needs JAX."""

import dataclasses
import typing
from collections.abc import Callable
from typing import Literal, TypeVar

from etude.core.config import ConvKind, Memory, NetworkConfig, Optimiser
from etude.errors import UserError, reason
from etude.ranges import Choice, Ranges, Span
from etude.settings import Settings, check, flag, lists_to_tuples

Config = TypeVar("Config")
Schedule = Literal["constant", "cosine"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlinePlan:
    """How a rule learns while its agents do."""

    inner_updates: int = 5
    """Agent updates per update of a rule that learns."""
    outer: str = "actor_critic"
    """The reference rule, with its own γ and λ, whose loss a rule that learns minimises:
    actor_critic:discount=0.99,td_lambda=1."""
    outer_rollout: int
    """Transitions per trajectory for the outer loss."""
    meta_optimiser: Optimiser = "adam"
    """Optimiser of a rule that learns: adam, rmsprop or sgd."""
    meta_learning_rate: float = 1e-3
    """Step size of a rule that learns."""
    revise: float = 0.0
    """Weight, for a rule that learns, of the agent's outer loss before each update (b₁, divided by
    the outer loss); 0 turns the term off."""
    revise_fades: bool = True
    """Whether that weight is divided by the outer loss, and so fades as that falls, or constant."""

    def __post_init__(self):
        _check_online(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """What a training run does, without a gap."""

    env: str = "catch"
    """Environment, with settings if any: catch, catch:rows=5,columns=5, gymnax/CartPole-v1, or your
    own as module:Class. `etude envs` lists them."""
    rule: str = "disco103"
    """Update rule, with settings if any: disco103, actor_critic, actor_critic:discount=0.9, ppo,
    policy_gradient, disco, a rule file, or your own as module:Class. `etude rules` lists them."""
    preset: str = "laptop"
    """What settings are if nothing else says: laptop has those that learn on one, paper those of
    the DiscoRL paper, for the suites it names; or a file, as etude tune writes it."""
    steps: int = 500_000
    """Environment steps per seed, over all its parallel environments."""
    seed: int = 0
    """Random seed; the same seed on the same machine gives the same bits."""
    seeds: int = 1
    """Number of agents trained side by side in one program, each from its own random key."""
    part: int = 0
    """Seeds that are computed together, one such part after another, which takes less memory; 0:
    all that a device has. With the same parts, any number of --devices gives the same bits."""
    batch: int = 32
    """Trajectories per update."""
    rollout: int = 20
    """Transitions per trajectory."""
    replay_share: float = 0.0
    """Fraction of each batch drawn from replay; 0 is purely on-policy. The rest of the batch is
    new, one trajectory per parallel environment."""
    replay_capacity: int = 1024
    """Trajectories kept for replay."""
    epochs: int = 1
    """Passes over each batch; the rule's targets are computed once per batch."""
    minibatches: int = 1
    """Equal parts that each epoch splits the batch into, with one optimiser step per part."""
    learning_rate: float = 1e-3
    """Step size of the agent's optimiser."""
    schedule: Schedule = "constant"
    """Learning rate after the warm-up: constant, or decaying to 0 along a cosine."""
    warmup: int = 0
    """Environment steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW)."""
    max_update: float = 1.0
    """Each entry of the optimiser's normalised step is clipped to ± this value."""
    torso: tuple[int, ...] = (512, 512)
    """Widths of the torso's layers."""
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
    """Latest observations of an episode that the network sees together."""
    value_peak: float = 0.0
    """How much the first logits of a categorical value (the q of disco, the value of actor_critic)
    fall from each bin to the next, away from that of 0; with 0, all are equally likely at first."""
    model: int = 128
    """Size of the action model's LSTM."""
    head: int = 128
    """Hidden width of the action model's heads."""
    memory: Memory = "none"
    """Recurrent cell that lets the agent remember earlier observations: none, gru or lstm."""
    memory_size: int = 128
    """Units of the recurrent cell."""
    memory_gate: bool = False
    """Whether what is read from memory is multiplied by a gate computed from the observation; suits
    observations of few symbols."""
    optimiser: Optimiser = "adam"
    """The agent's optimiser: adam, rmsprop or sgd."""
    lag: int = 1
    """On simulators outside JAX: 1 plays the next rollout, with the agent as it was before the
    update, while the update is computed; 0 plays and learns in turn, as with a rule that learns."""
    workers: int = 0
    """Processes that run a simulator outside JAX; 0 runs it in this one."""
    step_timeout: float = 60.0
    """Seconds after which a step of a simulator outside JAX counts as hanging."""
    max_seconds: float = 0.0
    """Seconds of work, compilation not counted, after which the run ends even if steps are left; 0
    sets no limit."""
    eval_episodes: int = 0
    """Episodes that each trained agent plays in the end to be evaluated, once with actions sampled
    and once with the likeliest ones; 0 evaluates none."""
    online: OnlinePlan | None = None
    """How the rule learns, if it does."""
    log_every: int
    """Updates per line of metrics."""

    def __post_init__(self):
        _check_training(self)
        if self.batch % self.minibatches:
            raise UserError(
                f"--batch {self.batch} does not make {self.minibatches} equal --minibatches."
            )
        if self.conv_kind == "classic" and len(self.conv) not in (0, 3):
            raise UserError(
                "The classic convolution has three layers: --conv needs three numbers of channels, "
                f"not {len(self.conv)}."
            )

    @property
    def learn_rule(self) -> bool:
        return self.online is not None

    @property
    def network(self) -> NetworkConfig:
        return NetworkConfig(
            torso=self.torso,
            conv=self.conv,
            conv_kind=self.conv_kind,
            embedding=self.embedding,
            frame_stack=self.frame_stack,
            value_peak=self.value_peak,
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

    def settings(self) -> Settings:
        """All of it flat, as in `config.json`; None for what only a rule that learns has."""
        fields = dataclasses.asdict(self)
        online = fields.pop("online") or dict.fromkeys(ONLINE_SETTINGS)
        return fields | {"learn_rule": self.learn_rule} | online

    @staticmethod
    def of(settings: Settings) -> "TrainPlan":
        """The plan with these settings, which are flat."""
        if missing := vars(TrainRequest()).keys() - settings.keys() - {*ONLINE_SETTINGS}:
            raise UserError(f"it lacks {min(missing)}.")
        # Folders of earlier versions lack some.
        online: Settings = {name: settings.get(name, ONLINE.get(name)) for name in ONLINE_SETTINGS}
        plain = {k: v for k, v in settings.items() if k not in (*online, "learn_rule")}
        learning = OnlinePlan(**online) if settings["learn_rule"] else None
        return TrainPlan(**plain, online=learning)

    @staticmethod
    def from_saved(settings: Settings) -> "TrainPlan":
        """The plan in a `config.json`."""
        at_the_time = {name: BASE[name] for name in LATER}
        return _saved(TrainRequest, TrainPlan.of, at_the_time | settings)


def _defaults(plan: type) -> Settings:
    fields = dataclasses.fields(plan)
    return {x.name: x.default for x in fields if x.default not in (dataclasses.MISSING, None)}


ONLINE_SETTINGS = tuple(field.name for field in dataclasses.fields(OnlinePlan))
BASE, ONLINE = _defaults(TrainPlan) | {"learn_rule": False}, _defaults(OnlinePlan)
"""What a setting is if neither the user nor a preset says; further ones of rules that learn."""
RANGES: Ranges = {
    "learning_rate": Span(1e-4, 1e-2, log=True),
    "batch": Choice((8, 16, 32, 64, 128)),
    "rollout": Choice((8, 16, 32, 64, 128)),
    "schedule": Choice(("constant", "cosine")),
    "torso": Choice(((64, 64), (128, 128), (256, 256))),
}
"""Where `etude tune` looks for settings under any rule."""
RANGES_OF_RULES: Ranges = {
    "epochs": Choice((1, 2, 4, 8)),
    "minibatches": Choice((1, 2, 4, 8)),
    "replay_share": Choice((0.5, 0.75, 0.875, 0.9375)),
}
"""Under rules that name these as `searched`."""
RANGES_ONLINE: Ranges = {
    "inner_updates": Choice((2, 5, 10)),
    "meta_learning_rate": Span(1e-4, 1e-2, log=True),
}
"""Under rules that learn."""
LATER = ("epochs", "minibatches", "memory", "memory_size", "memory_gate")
LATER += ("lag", "workers", "step_timeout", "conv_kind", "embedding", "frame_stack", "preset")
LATER += ("max_seconds", "eval_episodes", "part", "value_peak")
"""Settings that folders of earlier versions lack; at the time they were as in `BASE`."""


def _with_gaps(request: type[Config]) -> type[Config]:
    """Gives a class the settings of a plan as fields, each of which may be left out."""
    hints = typing.get_type_hints(TrainPlan)
    del hints["online"]
    hints["learn_rule"] = bool
    hints |= typing.get_type_hints(OnlinePlan) | {"log_every": hints.pop("log_every")}
    request.__annotations__ = {name: hint | None for name, hint in hints.items()}
    for name in hints:
        setattr(request, name, None)
    return dataclasses.dataclass(frozen=True)(request)


@_with_gaps
class TrainRequest:
    """What is asked of a training run. Anything left out comes from the rule's file, the preset for
    the environment and rule, or a default; --dry-run shows every value and where it comes from."""

    learn_rule: bool | None
    """Whether the rule itself learns while the agent does."""

    if typing.TYPE_CHECKING:

        def __init__(self, **settings: object): ...

    def __post_init__(self):
        _check_training(self)
        _check_online(self)

    @property
    def asked(self) -> Settings:
        """What is asked for, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def _check_training(settings: TrainRequest | TrainPlan) -> None:
    check(
        settings,
        count="steps seeds batch rollout epochs minibatches replay_capacity model head memory_size "
        "embedding log_every",
        frames="frame_stack",
        seed="seed",
        cost="warmup weight_decay max_seconds value_peak",
        positive="learning_rate max_update step_timeout",
        part="replay_share",
        whole="workers eval_episodes part",
        lag="lag",
        widths="torso",
        channels="conv",
    )


def _check_online(settings: TrainRequest | OnlinePlan) -> None:
    numbers = "inner_updates outer_rollout"
    check(settings, count=numbers, positive="meta_learning_rate", cost="revise")


def require_memory(memory: Memory, asked: Settings) -> None:
    """Refuses settings of a memory that agents do not have."""
    for name in ("memory_size", "memory_gate"):
        if memory == "none" and asked.get(name, BASE[name]) != BASE[name]:
            raise UserError(f"{flag(name)} is for agents with memory: --memory gru or lstm.")


MOST_PER_LINE = 10_000
"""Updates per line of metrics by default, all of which are held in memory until it is written."""


def updates_per_line(updates: int) -> int:
    """By default: a hundredth of them, so that a curve has a hundred points, up to a limit."""
    return min(max(1, updates // 100), MOST_PER_LINE)


def from_json(kind: type[Config], fields: Settings) -> Config:
    """A config (a dataclass) as it was saved."""
    return _saved(kind, lambda fields: kind(**fields), fields)


def _saved(kind: type, make: Callable[[Settings], Config], settings: Settings) -> Config:
    """What settings in a file, which someone may have mangled, make; `kind` has fields for them."""
    if unknown := sorted(settings.keys() - {field.name for field in dataclasses.fields(kind)}):
        raise UserError(
            f"The saved config holds settings this version lacks: {', '.join(unknown)}."
        )
    try:
        return make(lists_to_tuples(settings))
    except (TypeError, ValueError, UserError) as error:
        raise UserError(f"The saved config makes no sense: {reason(error)}") from None


def later_end(now: int, schedule: Schedule, end: int | None, path: str, unit: str = "steps") -> int:
    """The end of a run in a folder that is to go on to a later one, if that is given."""
    if end is None or end == now:
        return now
    if schedule == "cosine":
        raise UserError(f"A cosine schedule ends where it ends: --{unit} cannot be changed.")
    if end < now:
        raise UserError(f"{path} is a run of {now} {unit}; --{unit} can only add to it.")
    return end
