"""Speed of Krazy World, and where the time of an update of MAML or RL² goes.

    python -m benchmarks.adaptation

The last line is one JSON object: case → units, temp_mb, compile_s (see `measure.py`), with the
steps a second of acting and the shares of acting, adaptation and meta-update, and of the test that
follows each update of a run. Run it with nothing else running.
"""

import dataclasses
import json

import jax
from jaxtyping import PRNGKeyArray, PyTree

from benchmarks.measure import Measured, measure
from etude import envs
from etude.acting.jax_source import JaxSource
from etude.adaptation.by_gradient import ByGradient, Played
from etude.adaptation.config import AdaptConfig, Algorithm
from etude.adaptation.maml import Start
from etude.adaptation.method import AdaptState, draw_tasks
from etude.adaptation.rl2 import Recurrent
from etude.adaptation.run import make_method
from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.learner import Learner
from etude.core.types import Metrics, Rollout
from etude.envs import JaxTask
from etude.envs.trials import TaskDistribution

STEPS, ENVS = 100, 256


def draw(task: JaxTask, number: int) -> PyTree:
    assert isinstance(task.env, TaskDistribution)
    return jax.jit(draw_tasks, static_argnums=(0, 2))(task.env, jax.random.key(1), number)


def act() -> Measured:
    """A policy of 64×64 in 256 Krazy Worlds, a task in each; episodes that end begin anew."""
    world = envs.make_jax("krazy_world")
    heads, network = Heads(state={"pi": 4}), NetworkConfig((64, 64))
    agent = Agent(world.observation, 4, heads, network, key=jax.random.key(0))
    tasks = draw(world, ENVS)

    def unroll(agent: Agent, tasks: PyTree, key: PRNGKeyArray) -> PyTree:
        def one(params: PyTree, key: PRNGKeyArray) -> PyTree:
            task = dataclasses.replace(world, params=params)
            source = JaxSource(task, 1)
            after, rollout, _ = source.collect(agent, source.reset(agent, key), key, STEPS)
            return after, rollout.reward

        return jax.vmap(one)(tasks, jax.random.split(key, ENVS))

    return measure(unroll, agent, tasks, jax.random.key(2))


def parts(algo: Algorithm) -> dict[str, Measured]:
    """What an update consists of: acting, adaptation (MAML's steps alone), learning from it all;
    and its test."""
    config = AdaptConfig(algo=algo, tasks="krazy_world").filled()
    task = envs.make_jax(config.tasks)
    method = make_method(task, config)
    state, key = jax.jit(method.init)(jax.random.key(0)), jax.random.key(2)
    found = {}
    if isinstance(method, ByGradient):
        found = by_gradient(method, state, draw(task, method.config.batch), key)
    elif isinstance(method, Recurrent):
        found = recurrent(method, state, key)
    testing = measure(method.score, state.policy, draw(task, config.test_tasks), key)
    return found | {"testing": testing}


def by_gradient(
    method: ByGradient, state: AdaptState, tasks: PyTree, key: PRNGKeyArray
) -> dict[str, Measured]:
    played, _ = jax.jit(method.collect)(state.policy, tasks, key)

    def adaptation(policy: Start, played: Played) -> Agent:
        step = jax.vmap(method.problem.inner, in_axes=(None, None, 0))
        return step(policy, policy.agent, jax.tree.map(lambda x: x[:, 0], played.inner))[0]

    return {
        "acting": measure(method.collect, state.policy, tasks, key),
        "meta_update": measure(method.learn, state.policy, state.learning, played),
        "adaptation": measure(adaptation, state.policy, played),
    }


def recurrent(method: Recurrent, state: AdaptState, key: PRNGKeyArray) -> dict[str, Measured]:
    training, learning = method.training, state.learning
    learner = Learner(state.policy, learning.optimiser_state, learning.rule_state)
    _, batch, _ = jax.jit(training.play)(state.policy, learning.world, key)

    def learn(learner: Learner, batch: Rollout, key: PRNGKeyArray) -> tuple[Learner, Metrics]:
        return training.passes.update(method.rule, training.optimiser, learner, batch, key)

    return {
        "acting": measure(training.play, state.policy, learning.world, key),
        "meta_update": measure(learn, learner, batch, key),
    }


def main() -> None:
    measured = act()
    speed = 1e3 * STEPS * ENVS / measured.ms
    result: dict[str, PyTree] = {
        "krazy_world": measured.figures() | {"steps_per_second": round(speed)}
    }
    print(f"Krazy World, acting included: {speed:,.0f} steps/s")
    for algo in ("maml", "rl2"):
        by_part = parts(algo)
        # Acting has the steps of adaptation in it, since the policy after them acts as well.
        inner = by_part["adaptation"].ms if "adaptation" in by_part else 0.0
        times = {
            "acting": by_part["acting"].ms - inner,
            "adaptation": inner,
            "meta_update": by_part["meta_update"].ms,
            "testing": by_part["testing"].ms,
        }
        shares = {name: round(ms / sum(times.values()), 3) for name, ms in times.items()}
        print(f"{algo}: {sum(times.values()):.0f} ms an update, {shares}")
        result[algo] = {name: x.figures() for name, x in by_part.items()} | {"shares": shares}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
