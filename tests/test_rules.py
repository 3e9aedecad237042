"""Every rule on probes with known answers, and rule files."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import rules
from etude.api import train
from etude.core.agent import Agent, NetworkConfig
from etude.core.returns import categorical_mean
from etude.core.types import Rollout
from etude.errors import UserError
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.runs.arrays import write_arrays
from tests import parity

SMALL = dict(torso=(32,), model=16, head=16, batch=16, rollout=8, replay_share=0.0, log_every=100)
SMALL |= dict(schedule="cosine")
ACTOR_CRITIC = [
    "actor_critic:discount=0.9,bins=0,scale_values=false",
    "actor_critic:discount=0.9,bins=121,max_value=6",
]


def values_of(probe: str, discount: float) -> tuple[list[float], list[float]]:
    """The observations of a probe, and their values."""
    return {
        "ConstantReward": ([0.0], [1.0]),
        "SignReward": ([-1.0, 1.0], [-1.0, 1.0]),
        "DelayedReward": ([0.0, 1.0], [discount, 1.0]),
        "EndlessReward": ([0.0], [1.0 / (1.0 - discount)]),
    }[probe]


def value_head(result, observations):
    """The values an actor-critic's agent gives to observations of one number."""
    agent = result.agent()
    output = agent.predict(agent.torso(jnp.asarray(observations)[:, None]))["value"]
    config = result.rule.config
    return categorical_mean(output, config.max_value) if config.bins else output[:, 0]


@pytest.mark.parametrize(
    "probe", ["ConstantReward", "SignReward", "DelayedReward", "EndlessReward"]
)
@pytest.mark.parametrize("rule", ACTOR_CRITIC)
def test_actor_critic_finds_the_values(probe, rule):
    seen, values = values_of(probe, 0.9)
    result = train(f"tests.probes:{probe}", rule, steps=200_000, learning_rate=1e-2, **SMALL)
    np.testing.assert_allclose(value_head(result, seen), values, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("probe", ["BestAction", "MatchSign"])
@pytest.mark.parametrize("rule", [*ACTOR_CRITIC, "policy_gradient"])
def test_hand_made_rules_find_the_best_action(probe, rule):
    result = train(f"tests.probes:{probe}", rule, steps=40_000, learning_rate=3e-3, **SMALL)
    assert result.summary["final_return"]["mean"] > 0.95


def test_replay_does_not_break_the_actor_critic():
    settings = SMALL | dict(batch=32, replay_share=0.75, replay_capacity=64)
    result = train("tests.probes:MatchSign", "actor_critic", steps=40_000, **settings)
    assert result.summary["final_return"]["mean"] > 0.95


@pytest.fixture(scope="module")
def disco103():
    parity.published_rule()
    return "disco103:discount=0.5,bins=121,max_value=6"


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["DelayedReward", "EndlessReward"])
def test_disco_finds_the_action_values(disco103, probe):
    seen, values = values_of(probe, 0.5)
    result = train(f"tests.probes:{probe}", disco103, steps=32_000, learning_rate=1e-2, **SMALL)
    agent = result.agent()
    embedding = agent.torso(jnp.asarray(seen)[:, None])
    prediction = agent.predict_actions(agent.consider(embedding))
    q = categorical_mean(prediction["q"], result.rule.config.max_value)
    np.testing.assert_allclose(q, np.broadcast_to(values, q.shape), rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_disco_finds_the_best_action(disco103):
    result = train("tests.probes:MatchSign", disco103, steps=64_000, learning_rate=1e-2, **SMALL)
    assert result.summary["final_return"]["mean"] > 0.95


TINY = (
    "disco:prediction=7,hidden=8,rnn=6,embedding=4,channels=4x2,pi_channels=3,bins=11,max_value=5"
)


@pytest.mark.parametrize("spec", [TINY, "actor_critic:bins=11", "policy_gradient"])
def test_a_rule_file_gives_the_same_rule_back(spec, tmp_path):
    rule = rules.load(spec, seed=3)
    rules.save(tmp_path / "rule.npz", rule)
    for name in ("rule.npz", "."):
        again = rules.load(str(tmp_path / name))
        assert again.config == rule.config
        assert jax.tree.all(jax.tree.map(jnp.array_equal, again, rule))


def test_settings_override_those_of_a_file(tmp_path):
    rules.save(tmp_path / "rule.npz", rules.load(TINY))
    again = rules.load(f"{tmp_path / 'rule.npz'}:discount=0.5")
    assert again.config == dataclasses.replace(rules.load(TINY).config, discount=0.5)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dsco103", "did you mean 'disco103'"),
        ("nonsense", "there are disco103"),
        ("actor_critic:nope=1", "has no setting 'nope'"),
        ("policy_gradient:td_lambda=0.5", "td_lambda is for baseline=linear"),
        ("actor_critic:discoun=1", "did you mean 'discount'"),
        ("actor_critic:discount", "'discount' should have the form name=value"),
        ("actor_critic:discount=high", "must be of type float"),
        ("actor_critic:discount=1.5", "discount must be"),
        ("actor_critic:entropy_cost=-1", "entropy_cost must be"),
        ("actor_critic:bins=4", "bins must be"),
        ("disco:hidden=0", "hidden must be"),
        ("actor_critic:discount=", "form name=value"),
        ("Makefile", "not a sound file"),
    ],
)
def test_a_wrong_rule_gets_a_sentence(spec, words):
    with pytest.raises(UserError, match=words) as error:
        rules.load(spec)
    assert "\n" not in str(error.value)


def test_scaled_values_and_advantages_do_not_know_the_size_of_rewards():
    """Where the value head says 0: by hand at first, then in the units of both rollouts."""
    rule = ActorCritic(ActorCriticConfig(discount=0.5, td_lambda=1.0, bins=0, scale_values=True))
    rollout = random_rollout(jax.random.key(0))
    agent = Agent(jnp.zeros(3), 2, rule.heads(2), NetworkConfig(torso=(4,)), key=jax.random.key(1))
    agent = eqx.tree_at(lambda a: a.head["value"].w, agent, replace_fn=jnp.zeros_like)
    rollout = dataclasses.replace(rollout, behaviour_logits=agent.logits(rollout))
    larger = dataclasses.replace(rollout, reward=1000.0 * rollout.reward)
    first, state = rule.targets(agent, rule.init(agent), rollout)
    returns = np.zeros((rollout.reward.shape[0] + 1, rollout.reward.shape[1]))
    for t in reversed(range(len(rollout.reward))):
        returns[t] = rollout.reward[t] + 0.5 * ~rollout.terminal[t] * returns[t + 1]
    returns = returns[:-1]
    np.testing.assert_allclose(first.value, (returns - returns.mean()) / returns.std(), atol=1e-4)
    np.testing.assert_allclose(first.advantage, returns / returns.std(), atol=1e-4)
    same, others = rule.targets(agent, rule.init(agent), larger)
    np.testing.assert_allclose(same.advantage, first.advantage, atol=1e-4)
    then, _ = rule.targets(agent, state, rollout)
    again, _ = rule.targets(agent, others, larger)
    np.testing.assert_allclose(then.value, again.value, atol=1e-3)
    np.testing.assert_allclose(then.advantage, again.advantage, atol=1e-3)
    assert np.abs(then.advantage).mean() < np.abs(first.advantage).mean()  # the mean is known now


def random_rollout(key):
    keys = jax.random.split(key, 4)
    return Rollout(
        observation=jax.random.normal(keys[0], (7, 5, 3)),
        action=jax.random.randint(keys[1], (6, 5), 0, 2),
        reward=2.0 + jax.random.normal(keys[2], (6, 5)),
        terminal=jax.random.bernoulli(keys[3], 0.2, (6, 5)),
        seam=jnp.zeros((6, 5), bool),
        behaviour_logits=jnp.zeros((7, 5, 2)),
        mask=jnp.ones((6, 5), bool),
    )


def test_a_file_of_other_sizes_does_not_load(tmp_path):
    rules.save(tmp_path / "rule.npz", rules.load(TINY))
    with pytest.raises(UserError, match="does not fit"):
        rules.load(f"{tmp_path / 'rule.npz'}:hidden=9")


@pytest.mark.parametrize("training", [{"foo": 1}, {"seeds": 0}, 5])
def test_settings_that_go_with_a_rule_must_make_sense(tmp_path, training):
    rule = ActorCritic()
    if isinstance(training, dict):
        with pytest.raises(UserError, match="settings that make no sense"):
            rules.save(tmp_path / "rule.npz", rule, training=training)
    header = {"kind": "actor_critic", "config": {}, "training": training}
    write_arrays(tmp_path / "rule.npz", {}, header)
    with pytest.raises(UserError, match="settings that make no sense"):
        rules.suggested(str(tmp_path / "rule.npz"))
