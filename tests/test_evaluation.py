"""The separate evaluation of trained agents, and runs that end by the clock."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import etude
from etude import envs
from etude.core.players import GREEDY, Policy, Sharpened
from etude.envs import JaxTask
from etude.training.evaluation import episode_returns

KEY = jax.random.key(3)


def played(name: str, logits: list[float], sharpness: float = 1.0, number: int = 64, **settings):
    task = envs.make(f"tests.probes:{name}")
    assert isinstance(task, JaxTask)
    policy = Policy(lambda x: jnp.broadcast_to(jnp.asarray(logits), (number, len(logits))))
    player = Sharpened(policy, sharpness)
    return map(np.asarray, episode_returns(task, player, KEY, number, **settings))


def test_one_episode_is_played_in_each_environment():
    returns, over = played("DelayedReward", [0.0, 0.0])
    assert (returns == 1.0).all() and over.all()
    # Cut by a time limit of 5 steps; where we lose patience before, what there is counts.
    returns, over = played("EndlessReward", [0.0, 0.0])
    assert (returns == 5.0).all() and over.all()
    returns, over = played("EndlessReward", [0.0, 0.0], most_steps=3)
    assert (returns == 3.0).all() and not over.any()


def test_actions_are_sampled_or_the_likeliest_are_taken():
    p = 0.7  # of action 1, which pays 1; the other costs 1
    logits = [0.0, float(np.log(p / (1 - p)))]
    sampled, _ = played("BestAction", logits, number=4000)
    assert sampled.mean() == pytest.approx(2 * p - 1, abs=4 * np.sqrt(1 / 4000))
    greedy, _ = played("BestAction", logits, GREEDY)
    assert (greedy == 1.0).all()


def test_training_is_followed_by_an_evaluation_if_one_asks_for_it():
    settings = dict(batch=8, rollout=4, torso=(8,), seeds=2, learning_rate=0.05, eval_episodes=16)
    result = etude.train("tests.probes:BestAction", "actor_critic", steps=1600, **settings)
    found = result.summary["evaluation"]
    assert found["episodes"] == 16 and found["unfinished"] == 0
    assert found["greedy"] == [1.0, 1.0] and min(found["sampled"]) > 0.5
    # Outside JAX, each of 8 environments plays an episode of 3 steps and one of 5: were the first
    # 16 to end counted, there would be more of the short ones.
    result = etude.train("tests.host_probes:Cycle", "actor_critic", steps=320, **settings)
    found = result.summary["evaluation"]
    assert found["sampled"] == found["greedy"] == [4.0, 4.0]


def test_a_run_ends_when_its_seconds_are_used_up(tmp_path):
    settings = dict(batch=8, rollout=4, torso=(8,), seeds=2, log_every=50)
    out = str(tmp_path / "run")
    result = etude.train(
        "tests.probes:BestAction", "actor_critic", steps=10**8, max_seconds=0.3, out=out, **settings
    )
    seconds = result.summary["seconds"]
    assert 0 < result.done < result.config.updates and 0.3 <= seconds < 3.0
    again = etude.resume(out, trust=True)  # there is nothing more to do
    assert (again.done, again.summary) == (result.done, result.summary)
    assert dataclasses.asdict(result.config)["max_seconds"] == 0.3
