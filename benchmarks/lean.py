"""Speed of discovery, part by part: a rule like DiscoRL's in size `tiny`, and the lean residual.

    python -m benchmarks.lean

Eight agents on Catch 5×5, N = 10 updates on 32 trajectories of 8 transitions, validation on 64 of
16: the defaults of `etude discover` but for N. Parts are programs of their own, each of
which does what the one before does and one thing more, so that differences are the parts' times:
playing; making the targets; the agent's gradient and step, recorded; the meta-gradient. Times are
in units (see `measure.py`). The last line is one JSON object. Run it with nothing else running.
"""

import functools
import json
from collections.abc import Callable

import jax
from jaxtyping import Array, PyTree

from benchmarks.measure import Measured, measure
from etude import envs
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.population import JaxGroup
from etude.meta.discovery.seats import Seat, step_keys
from etude.meta.discovery.start import start_maker
from etude.rules import Rule

CASES = {
    "tiny": DiscoverConfig(inner_updates=10),
    "residual": DiscoverConfig(inner_updates=10, from_="residual"),
}


def played(group: JaxGroup, rule: Rule, seat: Seat) -> PyTree[Array]:
    """All batches of a window and the rollout for validation, by the agent as it is."""
    play_key, validation_key, _ = step_keys(seat)
    player = seat.member.lifetime.learner.player(rule)

    def play(world, key):
        world, batch, _ = group.training.play(player, world, key)
        return world, batch

    keys = jax.random.split(play_key, group.config.inner_updates)
    world, batches = jax.lax.scan(play, seat.member.world, keys)
    return world, batches, group._validate(rule, seat.member, player, validation_key)


def aimed(group: JaxGroup, rule: Rule, seat: Seat) -> PyTree[Array]:
    """And the targets of each batch."""
    world, batches, validation = played(group, rule, seat)
    learner = seat.member.lifetime.learner

    def aim(state, batch):
        targets, state = rule.targets(learner.agent, state, batch)
        return state, targets

    return world, jax.lax.scan(aim, learner.rule_state, batches), validation


def learned(group: JaxGroup, rule: Rule, seat: Seat) -> PyTree[Array]:
    """The whole window as it is played, learned from and recorded."""
    return group.live(rule, seat.member, *step_keys(seat)[:2])


def differentiated(group: JaxGroup, rule: Rule, seat: Seat) -> PyTree[Array]:
    """And the meta-gradient: a meta-step."""
    return group._step(rule, seat)


PARTS: dict[str, Callable] = {
    "play": played,
    "targets": aimed,
    "learn": learned,
    "meta-gradient": differentiated,
}


def run(config: DiscoverConfig) -> dict[str, Measured]:
    task = envs.make_jax(config.env_names[0])
    group = JaxGroup.create(task, config)
    assert isinstance(group, JaxGroup)
    rule = start_maker(config, [task])(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), config.agents)
    seats = jax.jit(jax.vmap(group.new_seat, in_axes=(None, 0)))(rule, keys)
    result = {}
    for name, part in PARTS.items():
        side_by_side = jax.vmap(functools.partial(part, group), in_axes=(None, 0))
        result[name] = measure(side_by_side, rule, seats, repeats=7)
    return result


def work(config: DiscoverConfig) -> tuple[int, int]:
    """Agent updates and environment steps of a meta-step."""
    window = config.inner_updates * config.rollout * config.batch
    validation = config.validation_rollout * config.validation_batch
    return config.agents * config.inner_updates, config.agents * (window + validation)


def main() -> None:
    table = {}
    print(f"{'rule':10} {'up to':14} {'units':>8} {'ms':>8} {'compile s':>9}")
    for case, config in CASES.items():
        parts = run(config)
        for name, m in parts.items():
            print(f"{case:10} {name:14} {m.units:8.2f} {m.ms:8.1f} {m.compile_s:9.1f}", flush=True)
        per_second = 1e3 / parts["meta-gradient"].ms
        updates, steps = (x * per_second for x in work(config))
        print(f"{case:10} {updates:.0f} agent updates/s, {steps:.0f} steps/s", flush=True)
        table[case] = {name: m.figures() for name, m in parts.items()}
    ratio = table["tiny"]["meta-gradient"]["units"] / table["residual"]["meta-gradient"]["units"]
    print(f"residual: {ratio:.2f} times as many updates as tiny")
    print(json.dumps(table | {"ratio": ratio}))


if __name__ == "__main__":
    main()
