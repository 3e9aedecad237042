"""Inspecting a rule: probes, horizons and inputs with known answers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.cli.terminal import print_inspection
from etude.core.learner import Learner
from etude.core.types import Rollout
from etude.errors import UserError
from etude.inspection import figures
from etude.inspection.inspect import inspect, subject
from etude.inspection.playing import Predictions, in_episodes
from etude.inspection.probes import Steps, explained, probe, split_by_episode, wanted
from etude.inspection.targets import horizon, reads
from etude.rules.disco.network import ProposedTargets
from etude.rules.disco.rule import Disco
from tests.conftest import random_like
from tests.probes import LearnedDiscount
from tests.test_learner import ACTIONS, CONFIG, B, T, make_learner, make_rollout

# --- Probes ---------------------------------------------------------------------------------------


def steps_of(lengths, rewards, **features) -> Steps:
    episode = np.repeat(np.arange(len(lengths)), lengths)
    reward = np.asarray(rewards, float)
    return Steps(episode, reward, np.arange(len(reward)) / 10, 2.0 * reward, features)


def test_what_probes_look_for():
    found = wanted(steps_of([3, 2], [1, 0, 4, 0, -2]), discount=0.5, ahead=(1, 2))
    nan = np.nan
    expected = {
        "return": [2, 2, 4, -1, -2],
        "next reward": [1, 0, 4, 0, -2],
        "value of the next state": [0, 8, nan, -4, nan],
        "entropy now": [0, 0.1, 0.2, 0.3, 0.4],
        "entropy in 1": [0.1, 0.2, nan, 0.4, nan],
        "entropy in 2": [0.2, nan, nan, nan, nan],
        "large reward within 1": [0, 0, 1, 0, 1],
        "large reward within 2": [0, 1, 1, 1, 1],
    }
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_episodes_are_held_out_whole():
    episode = np.repeat(np.arange(40), 5)
    fit, choose, test = split_by_episode(episode, seed=3)
    assert (fit.astype(int) + choose + test == 1).all()
    assert [len(np.unique(episode[x])) for x in (fit, choose, test)] == [20, 10, 10]
    assert not set(episode[test]) & set(episode[fit | choose])


def test_a_probe_of_what_is_there_finds_all_of_it_and_of_noise_nothing():
    random = np.random.default_rng(0)
    reward = random.normal(size=1200)
    steps = steps_of([6] * 200, reward)
    returns = wanted(steps, 0.9)["return"]
    hidden = np.stack([returns, random.normal(size=1200)], axis=1) @ random.normal(size=(2, 50))
    noise = random.normal(size=(1200, 3))
    features = {"there": hidden, "noise": noise, "nothing": np.ones((1200, 1))}
    found = probe(dataclasses.replace(steps, features=features), 0.9)["return"]
    assert found["there"] > 1 - 1e-6
    assert abs(found["noise"]) < 0.05 and abs(found["nothing"]) < 0.05


def test_half_of_the_variance():
    random = np.random.default_rng(1)
    seen, unseen = random.normal(size=(2, 40_000))
    split = split_by_episode(np.repeat(np.arange(4000), 10))
    assert abs(explained(seen[:, None], seen + unseen, split) - 0.5) < 0.02
    assert np.isnan(explained(seen[:, None], np.ones_like(seen), split))


def test_a_map_of_more_numbers_than_samples_is_held_back():
    random = np.random.default_rng(2)
    features, noise = random.normal(size=(400, 300)), random.normal(size=400)
    split = split_by_episode(np.repeat(np.arange(100), 4))
    assert -0.2 < explained(features, noise, split) < 0.2


def test_steps_are_taken_from_episodes_that_end():
    terminal = np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool)
    seam = np.array([[0, 0], [0, 0], [1, 0], [0, 0]], bool)
    reward = jnp.arange(8.0).reshape(4, 2)
    logits = jnp.zeros((5, 2, 2))
    terminal, seam = jnp.asarray(terminal), jnp.asarray(seam)
    rollout = Rollout(logits, seam.astype(int), reward, terminal, seam, logits, ~seam)
    found = in_episodes(rollout, Predictions(reward + 0.5, None, {"y": reward[..., None]}))
    np.testing.assert_array_equal(found.reward, [0, 2, 1, 3, 5])
    np.testing.assert_array_equal(found.features["y"][:, 0], found.reward)
    assert found.episode[0] == found.episode[1] != found.episode[2] == found.episode[4]


# --- How far ahead targets look -------------------------------------------------------------------


class Targets(eqx.Module):
    proposed: ProposedTargets


class ReturnRule(LearnedDiscount):
    """A made-up rule: ŷ is the return up to the end of the episode, ẑ the sum of two rewards, and π̂
    knows nothing of rewards."""

    def targets(self, agent, state, rollout):
        def back(total, step):
            reward, end = step
            total = reward + 0.5 * jnp.where(end, 0.0, total)
            return total, total

        ends = rollout.terminal
        nothing = jnp.zeros(rollout.reward.shape[1])
        _, returns = jax.lax.scan(back, nothing, (rollout.reward, ends), reverse=True)
        later = jnp.concatenate([rollout.reward[1:], nothing[None]])
        two = rollout.reward + jnp.where(ends, 0.0, later)
        aim = lambda x: jnp.stack([x, jnp.zeros_like(x)], axis=-1)  # noqa: E731
        pi = rollout.behaviour_logits[:-1]
        return Targets(ProposedTargets(pi, aim(returns), aim(two))), state


RULE = ReturnRule(jnp.array(0.3), jnp.array(-0.5))


DISCO = lambda: Disco(CONFIG, key=jax.random.key(0))  # noqa: E731


def kl(a: float, b: float) -> float:
    """Between softmaxes of (a, 0) and (b, 0)."""
    p, q = (1 / (1 + np.exp(-x)) for x in (a, b))
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


def test_a_reward_changes_targets_as_far_back_as_they_look():
    rollout = dataclasses.replace(make_rollout(), reward=jnp.zeros((T, B)))
    agent = make_learner(random_like(DISCO)).agent  # of which the rule makes nothing
    learner = Learner(agent, (), jnp.zeros((), jnp.int32))
    found = np.asarray(horizon(RULE, learner, rollout, 0.8))
    assert found.shape == (T, 3)
    np.testing.assert_allclose(found[:, 0], 0.0, atol=1e-7)
    np.testing.assert_allclose(found[:, 1], [kl(0, 0.8 * 0.5**k) for k in range(T)], rtol=1e-3)
    two = [kl(0, 0.8)] * 2 + [0.0] * (T - 2)
    np.testing.assert_allclose(found[:, 2], two, rtol=1e-3, atol=1e-7)


def test_a_target_that_is_the_return_is_found_to_be():
    random, size = np.random.default_rng(0), (10, 30)
    terminal = jnp.zeros(size, bool).at[4::5].set(True)
    logits = jnp.zeros((11, 30, ACTIONS))
    blank = jnp.zeros(size, bool)
    reward = jnp.asarray(random.normal(size=size), jnp.float32)
    rollout = Rollout(logits, blank.astype(int), reward, terminal, blank, logits, ~blank)
    targets, _ = RULE.targets(None, None, rollout)
    y = targets.proposed.y - targets.proposed.y.mean(axis=-1, keepdims=True)
    steps = in_episodes(rollout, Predictions(reward, None, {"ŷ": y, "π": logits[:-1]}))
    found = probe(steps, 0.5)["return"]
    assert found["ŷ"] > 1 - 1e-6 and found["π"] < 0.05


# --- What a rule reads ----------------------------------------------------------------------------


def test_what_a_rule_reads():
    """An input whose weights are 0 has no influence; all others have some."""
    rule = random_like(lambda: Disco(CONFIG, key=jax.random.key(0)))
    names = rule.network.input_names
    assert len(set(names)) == len(names) == rule.network.lstm.w.shape[0] - CONFIG.hidden
    deaf = [names.index("reward"), names.index("next y")]
    w = rule.network.lstm.w.at[jnp.array(deaf)].set(0.0)
    rule = eqx.tree_at(lambda r: r.network.lstm.w, rule, w)
    found = reads(rule, make_learner(rule), make_rollout())
    silent = np.isin(np.arange(len(names)), deaf)
    for influence in found:
        assert not np.any(np.asarray(influence)[silent])
    moves = np.asarray(found.gradient)[~silent] > 0
    # A channel of the action blocks may be dead, or a number the same everywhere.
    assert moves.all(axis=1).mean() > 0.8


def test_published_inputs_are_27():
    rule = jax.eval_shape(lambda: Disco(key=jax.random.key(0)))
    assert len(rule.network.input_names) == 27


# --- All of it ------------------------------------------------------------------------------------

SIZES = "prediction=4,hidden=4,rnn=3,embedding=3,channels=3x2,pi_channels=3,bins=11,max_value=5"
TINY = f"disco:{SIZES}"
TRAINING = dict(env="catch:rows=4,columns=3", torso=(6,), model=4, head=4, batch=4, rollout=4)
TRAINING |= dict(replay_share=0.0, steps=64)


@pytest.mark.slow
def test_agents_are_trained_under_a_rule_and_inspected(tmp_path, capsys):
    agents = subject(TINY, TRAINING | dict(seeds=2))
    found = inspect(agents, length=24, number=8, seed=0, say=print)
    print_inspection(found)
    figures.draw(found, tmp_path / "inspection.png")
    assert (tmp_path / "inspection.png").read_bytes()[:4] == b"\x89PNG"
    printed = capsys.readouterr().out
    assert "R² on held-out episodes" in printed and "ŷ changes most without" in printed
    summary = found.summary()
    assert summary["probes"].keys() >= {"return", "next reward", "entropy in 1"}
    assert set(summary["probes"]["return"]) == {"policy", "y", "z", "value"}
    assert all(x.shape == (2,) for x in summary["probes"]["return"].values())
    assert (
        np.isfinite(found.horizon[:3]).all() and np.isnan(found.horizon[3:]).all()
    )  # 3 steps long
    assert len(summary["inputs"]["ablation"]) == 27 and np.isfinite(found.gradient).all()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("actor_critic", "not of the kind disco"),
        (f"{TINY},predictions=false", "no predictions to inspect"),
        ("nowhere", "There is no rule"),
    ],
)
def test_what_cannot_be_inspected_gets_a_sentence(what, words):
    with pytest.raises(UserError, match=words):
        subject(what, TRAINING)
