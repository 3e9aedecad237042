"""Speed and memory of one meta-step: rollouts, agent updates, and the gradient through them.

    ETUDE_WEIGHTS_DIR=… python -m benchmarks.discovery [case …]

The setting is that of the released notebook: Catch 5×5, 32 environments, rollouts of 16 steps and
32 for validation, torso 512, 512, action model and head 256, and a rule of the size of Disco103.
Times are in units (see `measure.py`). The last line is one JSON object: case → units, temp_mb,
compile_s. Run it with nothing else running.
"""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import optax
from gymnax.environments import spaces

from benchmarks.measure import Measured, measure
from etude import envs, rules
from etude import rollout as acting
from etude.agent import Agent, NetworkConfig
from etude.discovery import Discovery, Lifetime, MetaValue, meta_gradient
from etude.discovery.metagradient import Memory
from etude.envs import Task
from etude.envs.catch import Catch
from etude.learner import Learner
from etude.optim import adam

ENVS, STEPS, VALIDATION_STEPS = 32, 16, 32
NETWORK = NetworkConfig(torso=(512, 512), model=256, head=256)
PROBLEM = Discovery(adam(5e-4))
META_OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(5e-4))


class ManyActions(Catch):
    """Catch 5×5 with 18 actions, six for each of its own."""

    def __init__(self):
        super().__init__(5, 5)

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action % 3, params)

    def action_space(self, params=None):
        return spaces.Discrete(18)


@dataclasses.dataclass(frozen=True)
class Case:
    agents: int
    updates: int
    env: str = "catch:rows=5,columns=5"
    memory: Memory = "nested"
    mixed_mode: bool = True


def start(task: Task, rule, key):
    """An agent at the start of its life, with the environments it acts in."""
    keys = jax.random.split(key, 3)
    heads = rule.heads(task.num_actions)
    agent = Agent(task.observation, task.num_actions, heads, NETWORK, key=keys[0])
    value = MetaValue.create(task.observation, key=keys[1])
    lifetime = Lifetime(Learner.create(agent, rule, PROBLEM.optimiser), value)
    return lifetime, acting.reset(task, keys[2], ENVS), META_OPTIMISER.init(rule)


def agent_step(case: Case, task: Task, rule, state, key):
    """One agent acts, learns, and says how the rule should change."""
    lifetime, actors, meta_state = state
    policy = lifetime.learner.agent.policy

    def act(actors, key):
        actors, rollout, _ = acting.unroll(task, policy, actors, key, STEPS)
        return actors, rollout

    keys = jax.random.split(key, case.updates + 1)
    actors, rollouts = jax.lax.scan(act, actors, keys[1:])
    actors, validation, _ = acting.unroll(task, policy, actors, keys[0], VALIDATION_STEPS)
    gradient, lifetime, metrics = meta_gradient(
        PROBLEM,
        rule,
        lifetime,
        rollouts,
        validation,
        memory=case.memory,
        mixed_mode=case.mixed_mode,
    )
    updates, meta_state = META_OPTIMISER.update(gradient, meta_state)
    return updates, (lifetime, actors, meta_state), metrics


def meta_step(case: Case, task: Task, rule, states, keys):
    """All agents; the rule takes the mean of their steps."""
    step = jax.vmap(lambda state, key: agent_step(case, task, rule, state, key))
    updates, states, metrics = step(states, keys)
    mean = jax.tree.map(lambda x: jnp.mean(x, axis=0), updates)
    return optax.apply_updates(rule, mean), states, metrics


def run(case: Case, rule) -> Measured:
    task = envs.make(case.env)
    keys = jax.random.split(jax.random.key(0), case.agents)
    states = jax.jit(jax.vmap(lambda key: start(task, rule, key)))(keys)
    return measure(
        lambda *arguments: meta_step(case, task, *arguments), rule, states, keys, repeats=7
    )


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
        table[name] = {"units": m.units, "temp_mb": m.temp_mb, "compile_s": m.compile_s}
    print(json.dumps(table))


if __name__ == "__main__":
    main()
