"""From meta-gradients to a step of the rule; whole discoveries by the name of a preset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.parts import Sum
from etude.meta.discovery.presets import PRESETS, resolve
from etude.meta.discovery.rule_optimiser import RuleOptimiser, RuleUpdate
from etude.meta.discovery.run import DiscoveryRun
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.runs.loop import advance_to_end
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY

RULE = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))


def optimiser(**settings) -> RuleOptimiser:
    return RuleOptimiser.create(DiscoverConfig(**settings))


def gradient(gamma: float, value_cost: float) -> LearnedDiscount:
    return LearnedDiscount(jnp.array(gamma), jnp.array(value_cost))


def test_the_rule_moves_along_the_mean_of_the_updates():
    total = Sum()
    total.add(RuleUpdate(gradient(1.0, 1.0), jnp.array(1)))
    total.add(RuleUpdate(gradient(2.0, 2.0), jnp.array(3)))
    moved, state, size = optimiser().step(RULE, total.whole, None, 0.1)
    assert state is None
    for before, after in zip(jax.tree.leaves(RULE), jax.tree.leaves(moved), strict=True):
        np.testing.assert_allclose(before - after, 0.1 * 3.0 / 4, rtol=1e-3)
    np.testing.assert_allclose(size, 0.075 * np.sqrt(2), rtol=1e-6)


def adam(gradients: list[float], rate: float) -> float:
    """How far Adam goes, in a plain loop."""
    mean = square = place = 0.0
    for i, g in enumerate(gradients, 1):
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        place -= rate * (mean / (1 - 0.9**i)) / (np.sqrt(square / (1 - 0.999**i)) + 1e-8)
    return place


ALL = jnp.array(True)
FIRST, SECOND = (1.0, -3.0, 0.5), (0.1, 0.2, -8.0)
"""The meta-gradients of two agents in three meta-steps."""


def test_one_adam_on_the_mean_of_the_gradients():
    one = optimiser(meta_average="gradients", meta_clip=0.0)
    rule, state = RULE, one.shared(RULE)
    assert one.of_agent(RULE) is None
    for pair in zip(FIRST, SECOND, strict=True):
        parts = [one.contribution(gradient(g, 0.0), None, ALL)[0] for g in pair]
        total = jax.tree.map(jnp.add, *parts)
        rule, state, size = one.step(rule, RuleUpdate(total, jnp.array(2)), state, 0.1)
        assert 0.0 < size < 0.11
    expected = adam([(a + b) / 2 for a, b in zip(FIRST, SECOND, strict=True)], 0.1)
    np.testing.assert_allclose(rule.gamma - RULE.gamma, expected, rtol=1e-5)
    assert rule.value_cost == RULE.value_cost


def test_an_adam_for_each_agent_and_the_mean_of_their_steps():
    each = optimiser(meta_average="updates", meta_clip=0.0)
    rule, states = RULE, [each.of_agent(RULE)] * 2
    assert each.shared(RULE) is None
    for pair in zip(FIRST, SECOND, strict=True):
        made = [
            each.contribution(gradient(g, 0.0), s, ALL) for g, s in zip(pair, states, strict=True)
        ]
        states = [state for _, state in made]
        total = jax.tree.map(jnp.add, *(update for update, _ in made))
        rule, _, _ = each.step(rule, RuleUpdate(total, jnp.array(2)), None, 0.1)
    expected = (adam([*FIRST], 0.1) + adam([*SECOND], 0.1)) / 2
    np.testing.assert_allclose(rule.gamma - RULE.gamma, expected, rtol=1e-5)


def test_a_bad_gradient_adds_nothing_and_without_a_good_one_nothing_moves():
    bad, each = gradient(jnp.nan, 1.0), optimiser(meta_average="updates")
    part, state = each.contribution(bad, each.of_agent(RULE), ~ALL)
    assert not any(map(np.any, jax.tree.leaves(part))) and state[1].steps == 0
    one = optimiser(meta_average="gradients")
    part, _ = one.contribution(bad, None, ~ALL)
    shared = one.shared(RULE)
    moved, after, size = one.step(RULE, RuleUpdate(part, jnp.array(0)), shared, 0.1)
    assert (moved.gamma, size, after[1].steps) == (RULE.gamma, 0.0, 0)


def test_what_adam_sees_is_clipped():
    far, one = gradient(3.0, 4.0), optimiser(meta_average="gradients", meta_clip=0.5)
    _, state, _ = one.step(RULE, RuleUpdate(far, jnp.array(1)), one.shared(RULE), 0.1)
    np.testing.assert_allclose(state[1].mu.gamma, 0.1 * 0.3, rtol=1e-6)
    free = optimiser(meta_average="gradients", meta_clip=0.0)
    _, state, _ = free.step(RULE, RuleUpdate(far, jnp.array(1)), free.shared(RULE), 0.1)
    np.testing.assert_allclose(state[1].mu.gamma, 0.1 * 3.0, rtol=1e-6)


def test_a_run_in_which_agents_share_one_adam_and_are_never_reset():
    settings = TINY | dict(meta_average="gradients", budgets=(), agents=2, meta_steps=4)
    run = DiscoveryRun.create(DiscoverConfig(**settings), RULE)
    assert not np.any(run.init().seats[0].member.age)  # all are young
    outcome = advance_to_end(run)
    assert outcome.state.optimiser_state[1].steps == 4
    assert all(record["resets"] == 0 < record["meta_update_norm"] for record in outcome.curve)


# --- Presets --------------------------------------------------------------------------------------


def test_the_notebook_as_it_was_released():
    config, origins = resolve(dict(preset="notebook", agents=3))
    assert (config.agents, origins["agents"]) == (3, "flag")
    assert (config.rollout, config.validation_rollout, config.batch) == (16, 32, 32)
    assert (config.inner_updates, config.meta_average) == (2, "gradients")
    assert (config.model, config.learning_rate, config.meta_learning_rate) == (256, 5e-4, 5e-4)
    value = (config.value_discount, config.value_lambda, config.value_learning_rate)
    assert value == (0.99, 0.96, 1e-3)
    assert (origins["rollout"], origins["seed"]) == ("preset notebook", "default")
    assert config.training("catch").num_envs == 32


def test_the_paper_as_far_as_it_says():
    config, origins = resolve(dict(preset="paper"))
    assert (len(config.env_names), config.agents, config.inner_updates) == (57, 128, 20)
    assert (config.batch, config.replay, config.validation_batch) == (96, 0.9, 48)
    assert (config.meta_clip, config.meta_average) == (1.0, "updates")
    assert (config.meta_steps, origins["meta_steps"]) == (800, "default")
    assert config.envs_in_words == "57 environments"


def test_presets_hold_settings_that_there_are_and_a_laptop_has_the_defaults():
    for name, preset in PRESETS.items():
        config, origins = resolve(dict(preset=name))
        assert {k: getattr(config, k) for k in preset} == preset
        assert origins.keys() == vars(config).keys()
    assert resolve({}).config == DiscoverConfig()
    with pytest.raises(UserError, match="no preset 'tablet': there are: laptop, notebook, paper"):
        resolve(dict(preset="tablet"))


def test_a_rule_to_start_from_has_its_own_size():
    config, origins = resolve(dict(preset="notebook", from_="disco103"))
    assert config.from_ == "disco103" and origins["size"] == "default"


def test_a_random_rule_of_the_notebook_is_as_large_as_the_published_one():
    size = jax.eval_shape(lambda: Disco(DiscoConfig(), key=jax.random.key(0)))
    assert sum(x.size for x in jax.tree.leaves(size)) == 754_778
