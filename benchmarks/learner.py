"""Speed and memory of one Disco103 agent update, of a whole training iteration, and of acting.

    ETUDE_WEIGHTS_DIR=… python -m benchmarks.learner

Times are in units (see `measure.py`), so that they carry from machine to machine. The last line is
one JSON object: case → units, temp_mb, compile_s. Run it with nothing else running.
"""

import functools
import json

import jax
import jax.numpy as jnp

from benchmarks.measure import Measured, measure
from etude import envs, rules
from etude.acting.jax_source import JaxSource
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, update
from etude.core.optim import adam
from etude.core.types import Metrics, Rollout
from etude.rules import Rule
from etude.rules.actor_critic import ActorCritic
from etude.training.config import TrainRequest
from etude.training.iteration import Training
from etude.training.presets import resolve


def random_rollout(steps: int, batch: int, observation: int, actions: int) -> Rollout:
    keys = jax.random.split(jax.random.key(1), 5)
    return Rollout(
        observation=jax.random.normal(keys[0], (steps + 1, batch, observation)),
        action=jax.random.randint(keys[1], (steps, batch), 0, actions),
        reward=jax.random.normal(keys[2], (steps, batch)),
        terminal=jax.random.bernoulli(keys[3], 0.1, (steps, batch)),
        seam=jnp.zeros((steps, batch), bool),
        behaviour_logits=jax.random.normal(keys[4], (steps + 1, batch, actions)),
        mask=jnp.ones((steps, batch), bool),
    )


def agent_update(rule: Rule, steps: int, batch: int, observation: int, actions: int) -> Measured:
    """One update of the default network under the rule."""
    optimiser = adam(3e-4)
    agent = Agent(jnp.zeros(observation), actions, rule.heads(actions), key=jax.random.key(0))
    learner = Learner.create(agent, rule, optimiser)
    rollout = random_rollout(steps, batch, observation, actions)

    def step(rule: Rule, learner: Learner, rollout: Rollout) -> tuple[Learner, Metrics]:
        return update(rule, optimiser, learner, rollout)

    return measure(step, rule, learner, rollout)


def catch_iteration(rule: Rule) -> Measured:
    """Act, remember, update: the Catch 8×8 setting of the released notebook."""
    config = resolve(TrainRequest(env="catch", rule="disco103"), "disco")
    training = Training.create(envs.make_jax("catch"), config)
    state = jax.jit(training.init)(rule, jax.random.key(0))
    return measure(training.iterate, rule, state)


def acting_speed(num_envs: int = 256, steps: int = 128) -> tuple[Measured, float]:
    """Catch steps a second with a small actor-critic network."""
    task = envs.make_jax("catch")
    heads, network = ActorCritic().heads(task.num_actions), NetworkConfig((64, 64))
    agent = Agent(task.observation, task.num_actions, heads, network, key=jax.random.key(0))
    source = JaxSource(task, num_envs)
    actors = source.reset(agent, jax.random.key(1))
    collect = functools.partial(source.collect, length=steps)
    measured = measure(collect, agent, actors, jax.random.key(2))
    return measured, num_envs * steps / measured.ms * 1e3


def main() -> None:
    rule = rules.load("disco103")
    cases = {
        "update_64x28_obs64_a3": agent_update(rule, 28, 64, 64, 3),
        "update_32x29_obs256_a18": agent_update(rule, 29, 32, 256, 18),
        "catch_iteration": catch_iteration(rule),
    }
    cases["acting_catch_256"], steps_per_second = acting_speed()
    print(f"{'case':26} {'units':>7} {'temp MB':>8} {'compile s':>9} {'ms':>8}")
    for name, m in cases.items():
        print(f"{name:26} {m.units:7.2f} {m.temp_mb:8.1f} {m.compile_s:9.1f} {m.ms:8.1f}")
    print(f"acting: {steps_per_second:,.0f} Catch steps/s with 256 environments")
    table = {name: measured.figures() for name, measured in cases.items()}
    table["acting_catch_256"]["steps_per_second"] = steps_per_second
    print(json.dumps(table))


if __name__ == "__main__":
    main()
