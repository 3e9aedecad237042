"""Why Disco103 is flat at first: variants of its start on Catch with a small network.

    ETUDE_WEIGHTS_DIR=… python -m benchmarks.flat_start [variant …] [--updates 800] [--seeds 3]

Each variant is trained from the same seeds, by default on 5×5. Told is after how many updates the
return of the last 100 episodes first passes −0.4, 0 and 0.9, per seed; then, every so many updates,
what the agents did and how far the policy's target is from the policy. `--list` says what the
variants are. A variant may have a first phase, in which some losses are turned off, and may start
with the state of the meta-RNN of agents that were trained before. The updates of a first phase
count separately.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import tyro

from etude import envs, rules
from etude.rules import Rule
from etude.training.config import TrainPlan, TrainRequest
from etude.training.iteration import Training, TrainState, seed_keys
from etude.training.presets import resolve

NETWORK: dict[str, Any] = dict(torso=(64,), model=32, head=32)
PLAN = dict(batch=32, rollout=8, replay_share=0.9375, **NETWORK)
LEVELS = -0.4, 0.0, 0.9
SHOWN = "pi_loss", "entropy", "y_loss", "y_entropy", "z_loss", "z_entropy", "q_loss", "aux_loss"


class Variant(NamedTuple):
    about: str
    plan: Mapping[str, Any] = MappingProxyType({})
    """Settings of training that differ."""
    first: str = ""
    """Settings of the rule in the first phase, if there is one."""
    warm: tuple[str, ...] = ()
    """What of the rule's state is taken over from agents that were trained before."""
    small: tuple[str, ...] = ()
    """Heads of the action model whose last layer starts a hundred times smaller."""


ALONE = "y_cost=0,z_cost=0,aux_cost=0"
VARIANTS = {
    "base": Variant("as it is: learning rate 1e-2, replay share 0.9375"),
    "lr1e-3": Variant("learning rate 1e-3", dict(learning_rate=1e-3)),
    "lr3e-3": Variant("learning rate 3e-3", dict(learning_rate=3e-3)),
    "lr3e-2": Variant("learning rate 3e-2", dict(learning_rate=3e-2)),
    "warm-up": Variant("the learning rate rises over 100 updates", dict(warmup=100 * 16)),
    "max-update": Variant("steps of Adam clipped to ± 0.3", dict(max_update=0.3)),
    "on-policy": Variant("no replay: 32 environments", dict(replay_share=0.0)),
    "half-replay": Variant("replay share 0.5: 16 environments", dict(replay_share=0.5)),
    "batch-8": Variant("batches of 8, of which 1 is new", dict(batch=8, replay_share=0.875)),
    "batch-128": Variant("batches of 128, of which 8 are new", dict(batch=128)),
    "q-first": Variant("q alone learns for a while", first=f"pi_cost=0,{ALONE}"),
    "yz-first": Variant("y and z alone learn for a while", first="pi_cost=0,value_cost=0"),
    "all-but-pi-first": Variant("all but the policy learns for a while", first="pi_cost=0"),
    "warm-rnn": Variant("the meta-RNN's state of trained agents", warm=("rnn",)),
    "warm-moments": Variant("moments of trained agents", warm=("advantage", "td")),
    "small-q": Variant("q starts near 0 for all", small=("q",)),
    "peaked-q": Variant("q starts as a peak around 0", dict(value_peak=0.5)),
    "peaked-q-3e-3": Variant("the same with 3e-3", dict(learning_rate=3e-3, value_peak=0.5)),
    "small-z": Variant("z starts near the uniform distribution", small=("z",)),
    "q-cost": Variant("the loss of q weighs 2 instead of 0.2", dict(rule="disco103:value_cost=2")),
}


@dataclasses.dataclass(frozen=True)
class Options:
    variants: tyro.conf.Positional[tuple[str, ...]] = ()
    env: str = "catch:rows=5,columns=5"
    updates: int = 800
    first_phase: int = 300
    """Updates of the first phase, where there is one."""
    seeds: int = 3
    seed: int = 700
    every: int = 25
    """Updates between two looks."""
    show: int = 100
    list: bool = False


class Look(NamedTuple):
    """At all seeds, after some updates."""

    updates: int
    returns: np.ndarray
    """The mean of each seed's last 100 episodes."""
    metrics: dict[str, float]
    """Means over seeds and the updates since the last look."""


def planned(variant: Variant, options: Options) -> TrainPlan:
    settings = dict(env=options.env, seeds=options.seeds, rule="disco103", learning_rate=1e-2)
    settings |= PLAN | dict(variant.plan)
    return resolve(TrainRequest(**settings), "disco")


def rule_of(plan: TrainPlan, settings: str = "") -> Rule:
    separator = "," if ":" in plan.rule else ":"
    return rules.load(plan.rule + (separator + settings if settings else ""))


def looks(
    training: Training, rule: Rule, states: TrainState, updates: int, every: int
) -> Iterator[tuple[TrainState, Look]]:
    run = jax.jit(jax.vmap(lambda r, s: training.run(r, s, every, every), in_axes=(None, 0)))
    for done in range(every, updates + 1, every):
        states, metrics = run(rule, states)
        found = {name: float(np.mean(metrics[name])) for name in SHOWN}
        found["adv. sd"] = float(np.mean(states.learner.rule_state.advantage.deviation))
        found["rnn"] = float(np.mean(np.abs(states.learner.rule_state.rnn.hidden)))
        returns = np.array([x.mean() if len(x) else np.nan for x in states.world.episodes.last()])
        yield states, Look(done, returns, found)


def started(training: Training, rule: Rule, options: Options) -> TrainState:
    keys = seed_keys(options.seed, options.seeds)
    return jax.jit(jax.vmap(training.init, in_axes=(None, 0)))(rule, keys)


def shrunk(states: TrainState, heads: tuple[str, ...]) -> TrainState:
    """With heads, of the agent and of the target network, whose outputs are near 0."""
    for name in heads:

        def weights(s: TrainState, name: str = name) -> list:
            agents = s.learner.agent, s.learner.rule_state.target
            models = [agent.model for agent in agents if agent.model is not None]
            return [model.heads[name].layers[-1].w for model in models]

        states = eqx.tree_at(weights, states, [0.01 * w for w in weights(states)])
    return states


def warmed(states: TrainState, parts: tuple[str, ...], options: Options) -> TrainState:
    """With parts of the rule's state as they are when the agents of `base` are trained."""
    plan = planned(VARIANTS["base"], options)
    training, rule = Training.create(envs.make(plan.env), plan), rule_of(plan)
    *_, (old, _) = looks(
        training, rule, started(training, rule, options), options.updates, options.updates
    )
    for part in parts:
        states = eqx.tree_at(
            lambda s, part=part: getattr(s.learner.rule_state, part),
            states,
            getattr(old.learner.rule_state, part),
        )
    return states


def tell(name: str, options: Options) -> None:
    variant = VARIANTS[name]
    plan = planned(variant, options)
    training, rule = Training.create(envs.make(plan.env), plan), rule_of(plan)
    states = shrunk(started(training, rule, options), variant.small)
    if variant.first:
        first = rule_of(plan, variant.first)
        phase = looks(training, first, states, options.first_phase, options.every)
        for trained, look in phase:
            states = trained
            if look.updates % options.show == 0:
                print_look(look, "first phase")
    if variant.warm:
        states = warmed(states, variant.warm, options)
    seen = []
    for _, look in looks(training, rule, states, options.updates, options.every):
        seen.append(look)
        if look.updates % options.show == 0:
            print_look(look)
        if min(look.returns) > LEVELS[-1]:
            break
    passed = (" / ".join(first_above(seen, level)) for level in LEVELS)
    print(f"| {name} | {variant.about} | {' | '.join(passed)} |", flush=True)


def first_above(seen: list[Look], level: float) -> list[str]:
    """For each seed, after how many updates it first was above a level."""
    each = [[x.updates for x in seen if x.returns[i] > level] for i in range(len(seen[0].returns))]
    return [str(x[0]) if x else "–" for x in each]


def print_look(look: Look, phase: str = "") -> None:
    returns = " ".join(f"{x:.2f}" for x in look.returns)
    metrics = "  ".join(f"{name} {x:.3g}" for name, x in look.metrics.items())
    print(f"    {phase} {look.updates}: return {returns}  {metrics}", flush=True)


def main(options: Options) -> None:
    if options.list:
        for name, variant in VARIANTS.items():
            print(f"{name:18} {variant.about}")
        return
    print(f"| variant | what | {' | '.join(f'above {x:g}' for x in LEVELS)} |")
    print("|---" * (2 + len(LEVELS)) + "|", flush=True)
    for name in options.variants or VARIANTS:
        tell(name, options)


if __name__ == "__main__":
    main(tyro.cli(Options))
