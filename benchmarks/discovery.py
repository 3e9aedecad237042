"""Speed and memory of one meta-step: rollouts, agent updates, and the gradient through them.

    ETUDE_WEIGHTS_DIR=… python -m benchmarks.discovery [case …]

The setting is that of the released notebook: Catch 5×5, 32 environments, rollouts of 16 steps and
32 for validation, torso 512, 512, action model and head 256, and a rule of the size of Disco103.
Times are in units (see `measure.py`). The last line is one JSON object: case → units, temp_mb,
compile_s. Run it with nothing else running.
"""

import dataclasses
import functools
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from benchmarks.measure import Measured, measure
from etude import envs, rules
from etude.acting.jax_source import Actors, JaxSource
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner
from etude.core.optim import adam
from etude.core.types import Rollout
from etude.envs import JaxTask
from etude.envs.catch import Catch
from etude.meta.config import Recording
from etude.meta.discovery.meta_value import MetaValue
from etude.meta.discovery.problem import Discovery, Lifetime
from etude.meta.gradient import meta_gradient, record
from etude.rules import Rule

ENVS, STEPS, VALIDATION_STEPS = 32, 16, 32
NETWORK = NetworkConfig(torso=(512, 512), model=256, head=256)
PROBLEM = Discovery(optax.flatten(adam(5e-4)))


class ManyActions(Catch):
    """Catch 5×5 with 18 actions, six for each of its own."""

    num_actions = 18

    def __init__(self):
        super().__init__(5, 5)

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action % 3, params)


@dataclasses.dataclass(frozen=True)
class Case:
    agents: int
    updates: int
    env: str = "catch:rows=5,columns=5"
    record: Recording = "nested"
    mixed_mode: bool = True


def start(task: JaxTask, rule: Rule, key: PRNGKeyArray) -> tuple[Lifetime, Actors]:
    """An agent at the start of its life, with the environments it acts in."""
    keys = jax.random.split(key, 3)
    heads = rule.heads(task.num_actions)
    agent = Agent(task.observation, task.num_actions, heads, NETWORK, key=keys[0])
    value = MetaValue.create(task.observation, key=keys[1])
    lifetime = Lifetime(Learner.create(agent, rule, PROBLEM.optimiser), value)
    return lifetime, JaxSource(task, ENVS).reset(agent, keys[2])


def cut(rollout: Rollout, at: Int[Array, "*N T"]) -> Rollout:
    """The given transitions, and the observations around them."""
    around = jnp.concatenate([at, at[..., -1:] + 1], axis=-1)
    with_ends = (rollout.observation, rollout.behaviour_logits)
    return eqx.tree_at(
        lambda r: (r.observation, r.behaviour_logits),
        jax.tree.map(lambda x: x[at], rollout),
        jax.tree.map(lambda x: x[around], with_ends),
    )


def agent_step(
    case: Case, task: JaxTask, rule: Rule, lifetime: Lifetime, actors: Actors, key: PRNGKeyArray
):
    """One agent acts and learns; the gradient says how the rule should change."""
    steps = case.updates * STEPS
    agent, length = lifetime.learner.agent, steps + VALIDATION_STEPS
    actors, whole, _ = JaxSource(task, ENVS).collect(agent, actors, key, length)
    rollouts = cut(whole, jnp.arange(steps).reshape(-1, STEPS))
    validation = cut(whole, jnp.arange(steps, steps + VALIDATION_STEPS))
    window = record(PROBLEM, rule, lifetime, rollouts, case.record)
    result = meta_gradient(PROBLEM, rule, window, validation, mixed_mode=case.mixed_mode)
    return result, actors


def run(case: Case, rule: Rule) -> Measured:
    task = envs.make_jax(case.env)
    init = functools.partial(start, task, rule)
    step = functools.partial(agent_step, case, task)
    key = jax.random.key(0)
    if case.agents > 1:
        init, step = jax.vmap(init), jax.vmap(step, in_axes=(None, 0, 0, 0))
        key = jax.random.split(key, case.agents)
    lifetime, actors = jax.jit(init)(key)
    return measure(step, rule, lifetime, actors, key, repeats=7)


MANY = "benchmarks.discovery:ManyActions"
CASES = {
    "agents1_updates20": Case(1, 20),
    "agents1_updates5_a18": Case(1, 5, MANY),
    "agents2_updates2": Case(2, 2),
    "agents1_updates5": Case(1, 5),
    "agents1_updates10": Case(1, 10),
    "agents1_updates40": Case(1, 40),
}


def main() -> None:
    rule = rules.load("disco103")
    table = {}
    print(f"{'case':22} {'units':>7} {'an update':>9} {'temp MB':>8} {'compile s':>9} {'ms':>8}")
    for name in sys.argv[1:] or CASES:
        m, updates = run(CASES[name], rule), CASES[name].updates
        print(
            f"{name:22} {m.units:7.2f} {m.units / updates:9.2f} {m.temp_mb:8.1f} "
            f"{m.compile_s:9.1f} {m.ms:8.1f}",
            flush=True,
        )
        table[name] = m.figures()
    print(json.dumps(table))


if __name__ == "__main__":
    main()
