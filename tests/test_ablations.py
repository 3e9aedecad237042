"""DiscoRL with parts left out: nothing of what is left out has any influence, and the rest is as it
was."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.learner import mean_loss
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.meta_value import MetaValue, MetaValueConfig
from etude.meta.discovery.start import SIZES, settings_in, start_maker
from etude.rules.disco.rule import Disco
from tests.conftest import random_like
from tests.test_learner import (
    ACTIONS,
    CONFIG,
    OBSERVATION,
    dead_leaves,
    make_learner,
    make_rollout,
)

pytestmark = pytest.mark.usefixtures("x64")


def without(**settings) -> Disco:
    """A rule with the same parameters, whatever its settings."""
    config = dataclasses.replace(CONFIG, **settings)
    return random_like(lambda: Disco(config, key=jax.random.key(0)))


def dead_in(rule: Disco) -> list[str]:
    """The leaves of the rule that play no part in targets, the meta-RNN's next state, or costs."""
    learner, rollout = make_learner(rule), make_rollout()

    def all_of_it(rule: Disco):
        targets, state = rule.targets(learner.agent, learner.rule_state, rollout)
        loss, _ = mean_loss(learner.agent, rule, targets, rollout)
        cost = rule.target_cost(targets, learner.rule_state, rollout)
        return loss + cost + jnp.sum(state.rnn.hidden)

    return dead_leaves(jax.jit(jax.grad(all_of_it))(rule))


def dead_in_agent(rule: Disco) -> list[str]:
    """The leaves of an agent that play no part in its loss."""
    learner, rollout = make_learner(rule), make_rollout()
    targets, _ = targets_of(rule)
    loss = lambda agent: mean_loss(agent, rule, targets, rollout)[0]  # noqa: E731
    return dead_leaves(jax.jit(jax.grad(loss))(learner.agent))


def targets_of(rule: Disco, learner=None):
    learner = make_learner(rule) if learner is None else learner
    return jax.jit(Disco.targets)(rule, learner.agent, learner.rule_state, make_rollout())


def test_without_y_and_z():
    rule = without(predictions=False)
    heads = rule.heads(ACTIONS)
    assert (set(heads.state), set(heads.action)) == ({"pi"}, {"q", "p"})
    dead = dead_in(rule)
    assert dead_in_agent(rule) == []
    parts = ("y_net", "z_net", "y_out", "z_out")
    assert all(any(part in name for part in parts) for name in dead)
    assert len(dead) == 2 * 2 * 4 + 2 * 2  # two layers in each of two nets of two encoders
    assert rule.agent_cost(make_learner(rule).agent, make_rollout()) == 0


def test_what_is_not_predicted_reads_as_if_its_embedding_were_zero():
    """So does the whole rule whose nets for y and z give 0."""
    whole = without()

    def silent(encoder):
        return [
            x for net in (encoder.y_net, encoder.z_net) for x in (net.layers[1].w, net.layers[1].b)
        ]

    last = lambda r: [*silent(r.network.encoder), *silent(r.network.rnn.encoder)]  # noqa: E731
    deaf = eqx.tree_at(last, whole, [jnp.zeros_like(x) for x in last(whole)])
    learner, bare = make_learner(whole), without(predictions=False)

    def bared(agent):
        head = {"pi": agent.head["pi"]}
        heads = {name: agent.model.heads[name] for name in ("p", "q")}
        return eqx.tree_at(lambda a: (a.head, a.model.heads), agent, (head, heads))

    state = eqx.tree_at(lambda s: s.target, learner.rule_state, bared(learner.rule_state.target))
    less = dataclasses.replace(learner, agent=bared(learner.agent), rule_state=state)
    (expected, after), (found, after_less) = targets_of(deaf, learner), targets_of(bare, less)
    np.testing.assert_allclose(found.proposed.pi, expected.proposed.pi, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after_less.rnn.hidden, after.rnn.hidden, rtol=1e-9, atol=1e-12)


def test_without_values():
    rule = without(values=False)
    assert set(rule.heads(ACTIONS).action) == {"z", "p"}
    assert dead_in_agent(rule) == []
    found, _ = targets_of(rule)
    assert not any(np.any(x) for x in jax.tree.leaves(found.values))
    assert np.all(np.isfinite(found.proposed.pi))


def test_without_the_auxiliary_prediction():
    whole, rule = without(), without(aux_cost=0.0)
    dead = dead_in_agent(rule)
    assert all("heads.p" in name for name in dead) and len(dead) == 4
    learner, rollout = make_learner(whole), make_rollout()
    targets, _ = targets_of(whole)
    loss, metrics = mean_loss(learner.agent, whole, targets, rollout)
    less, _ = mean_loss(learner.agent, rule, targets, rollout)
    np.testing.assert_allclose(loss - less, metrics["aux_loss"], rtol=1e-6)


def test_without_the_meta_rnn():
    whole, rule = without(), without(meta_rnn=False)
    dead = dead_in(rule)
    parts = ("network.rnn.", "network.modulation", "network.extra")  # extra is for the meta-RNN
    assert all(name.startswith(parts) for name in dead)
    assert len(dead) == len(jax.tree.leaves(whole.network.rnn)) + 4
    state = make_learner(rule).rule_state
    _, after = targets_of(rule)
    np.testing.assert_array_equal(after.rnn.hidden, state.rnn.hidden)
    # A modulation by 1, whatever is remembered, is none.
    neutral = eqx.tree_at(
        lambda r: (r.network.modulation.w, r.network.modulation.b),
        whole,
        (jnp.zeros_like(whole.network.modulation.w), jnp.ones_like(whole.network.modulation.b)),
    )
    expected, found = targets_of(neutral)[0].proposed, targets_of(rule)[0].proposed
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_without_regularisers():
    costs = dict(target_mean_cost=0.0, target_kl_cost=0.0, prediction_entropy_cost=0.0)
    whole, rule = without(), without(**costs)
    learner, rollout = make_learner(rule), make_rollout()
    (targets, _), (expected, _) = targets_of(rule), targets_of(whole)
    np.testing.assert_array_equal(targets.proposed.pi, expected.proposed.pi)
    assert rule.target_cost(targets, learner.rule_state, rollout) == 0
    assert rule.agent_cost(learner.agent, rollout) == 0
    assert whole.target_cost(targets, learner.rule_state, rollout) > 0


def test_without_a_meta_value_function_advantages_are_returns():
    config = MetaValueConfig(torso=(5,), discount=0.9, td_lambda=0.5, learn=False)
    value = MetaValue.create(jnp.zeros(OBSERVATION), config, key=jax.random.key(0))
    rollout = make_rollout()
    on_policy = rollout.behaviour_logits
    found = value.evaluate(on_policy, rollout)
    returns, total = [], np.zeros(rollout.reward.shape[1])
    for reward, end in zip(rollout.reward[::-1], rollout.terminal[::-1], strict=True):
        total = np.asarray(reward) + 0.9 * np.where(end, 0.0, total)
        returns.insert(0, total)
    np.testing.assert_allclose(found.advantage, returns, rtol=1e-6)
    assert not np.any(found.value)
    after, metrics = value.update(on_policy, rollout)
    assert metrics["value_gradient_norm"] == metrics["value_loss"] == 0
    for a, b in zip(jax.tree.leaves(after.network), jax.tree.leaves(value.network), strict=True):
        np.testing.assert_array_equal(a, b)
    assert after.advantage != value.advantage  # what normalises them is still learned


def test_settings_of_a_random_rule_reach_it():
    config = DiscoverConfig(rule_settings="aux_cost=0,meta_rnn=false")
    rule = jax.eval_shape(start_maker(config, []), jax.random.key(0))
    expected = dataclasses.replace(SIZES["tiny"], aux_cost=0.0, meta_rnn=False)
    assert isinstance(rule, Disco) and rule.config == expected
    assert settings_in("") == {}
    for text, words in (("nothing", "form name=value"), ("aux=0", "no setting 'aux'")):
        with pytest.raises(UserError, match=words):
            start_maker(DiscoverConfig(rule_settings=text), [])
    with pytest.raises(UserError, match="--rule-settings is for a random rule"):
        DiscoverConfig(from_="disco103", rule_settings="aux_cost=0")
