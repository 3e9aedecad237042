"""One agent update under the Disco rule: every part learns; masks and seams keep their word."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner, mean_loss, update
from etude.core.optim import adam
from etude.core.types import Rollout
from etude.rules.disco.rule import Disco, DiscoConfig
from etude.runs.storage import named_leaves
from tests.conftest import random_like

pytestmark = pytest.mark.usefixtures("x64")

CONFIG = DiscoConfig(
    prediction=7,
    hidden=8,
    rnn=6,
    embedding=4,
    channels=(4, 2),
    pi_channels=3,
    bins=11,
    max_value=5.0,
)
T, B, ACTIONS, OBSERVATION = 5, 3, 3, 4
OPTIMISER = adam(1e-2)


def plain_update(rule, learner, rollout):
    return update(rule, OPTIMISER, learner, rollout)


compiled_update = jax.jit(plain_update)
compiled_targets = jax.jit(Disco.targets)
compiled_gradient = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))


@pytest.fixture
def rule() -> Disco:
    return random_like(lambda: Disco(CONFIG, key=jax.random.key(0)))


def make_agent(rule: Disco, scale: float = 0.5) -> Agent:
    network = NetworkConfig(torso=(6, 5), model=4, head=4)
    observation = jnp.zeros(OBSERVATION)
    make = lambda: Agent(  # noqa: E731
        observation, ACTIONS, rule.heads(ACTIONS), network, key=jax.random.key(0)
    )
    return random_like(make, scale)


def make_learner(rule: Disco, scale: float = 0.5) -> Learner:
    """A learner some way into its life: θ⁻ differs from θ, the meta-RNN remembers something."""
    learner = Learner.create(make_agent(rule, scale), rule, OPTIMISER)
    memory = jax.tree.map(lambda x: x + 0.3, learner.rule_state.rnn)
    target = jax.tree.map(lambda x: 0.8 * x, learner.agent)
    state = eqx.tree_at(lambda s: (s.rnn, s.target), learner.rule_state, (memory, target))
    return Learner(learner.agent, learner.optimiser_state, state)


def make_rollout(seed: int = 0, steps: int = T) -> Rollout:
    """Random experience with one episode's end in it."""
    random = np.random.default_rng(seed)
    terminal = np.zeros((steps, B), bool)
    terminal[1, 0] = True
    return Rollout(
        observation=jnp.asarray(random.normal(size=(steps + 1, B, OBSERVATION))),
        action=jnp.asarray(random.integers(ACTIONS, size=(steps, B))),
        reward=jnp.asarray(random.normal(size=(steps, B))),
        terminal=jnp.asarray(terminal),
        seam=jnp.zeros((steps, B), bool),
        behaviour_logits=jnp.asarray(random.normal(size=(steps + 1, B, ACTIONS))),
        mask=jnp.ones((steps, B), bool),
    )


def stack(trees):
    """Trees of one form as a single one with a new first axis."""
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def dead_leaves(gradient) -> list[str]:
    """The names of the leaves that are zero in every entry."""
    return [name for name, x in named_leaves(gradient).items() if not np.any(x)]


def assert_trees_close(actual, expected, tolerance: float = 1e-9) -> None:
    for (name, a), b in zip(named_leaves(actual).items(), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


# --- Learning ------------------------------------------------------------------------------------


def test_no_leaf_of_the_agent_is_dead(rule):
    learner, rollout = make_learner(rule), make_rollout()
    targets, _ = compiled_targets(rule, learner.agent, learner.rule_state, rollout)
    _, gradient = compiled_gradient(learner.agent, rule, targets, rollout)
    assert dead_leaves(gradient) == []


def test_updates_reduce_the_loss_on_the_same_targets(rule):
    learner, rollout = make_learner(rule), make_rollout()
    targets, _ = compiled_targets(rule, learner.agent, learner.rule_state, rollout)
    (before, _), _ = compiled_gradient(learner.agent, rule, targets, rollout)
    learner, metrics = compiled_update(rule, learner, rollout)
    (after, _), _ = compiled_gradient(learner.agent, rule, targets, rollout)
    np.testing.assert_allclose(metrics["loss"], before, rtol=1e-9)
    assert after < before


def test_the_target_network_follows_the_agent_before_the_update(rule):
    learner = make_learner(rule)
    updated, _ = compiled_update(rule, learner, make_rollout())
    expected = jax.tree.map(
        lambda old, agent: 0.9 * old + 0.1 * agent, learner.rule_state.target, learner.agent
    )
    assert_trees_close(updated.rule_state.target, expected)


def test_vmap_over_learners_is_the_same_as_one_by_one(rule):
    learners = [make_learner(rule, scale) for scale in (0.5, 0.4)]
    rollouts = [make_rollout(seed) for seed in (0, 1)]
    separate = [compiled_update(rule, *pair) for pair in zip(learners, rollouts, strict=True)]
    vmapped = jax.jit(jax.vmap(plain_update, in_axes=(None, 0, 0)))
    together = vmapped(rule, stack(learners), stack(rollouts))
    assert_trees_close(together, stack(separate))


def test_metrics_are_finite_scalars(rule):
    _, metrics = compiled_update(rule, make_learner(rule), make_rollout())
    assert {"loss", "gradient_norm", "update_norm", "entropy"} <= metrics.keys()
    for name, value in metrics.items():
        assert value.shape == (), name
        assert np.isfinite(value), name


# --- Masks ---------------------------------------------------------------------------------------


def test_masked_transitions_do_not_change_the_gradient(rule):
    """Other actions, targets and observations where the mask is false: the same loss gradient."""
    learner, rollout = make_learner(rule), make_rollout()
    mask = jnp.ones((T, B), bool).at[:, 1].set(False)
    rollout = eqx.tree_at(lambda r: r.mask, rollout, mask)
    targets, _ = compiled_targets(rule, learner.agent, learner.rule_state, rollout)

    other = eqx.tree_at(
        lambda r: (r.action, r.observation),
        rollout,
        ((rollout.action + ~mask) % ACTIONS, rollout.observation.at[:, 1].add(3.0)),
    )
    other_targets = jax.tree.map(lambda x: x.at[:, 1].multiply(-2.0), targets)
    unmasked = eqx.tree_at(lambda r: r.mask, other, jnp.ones((T, B), bool))

    (loss, _), gradient = compiled_gradient(learner.agent, rule, targets, rollout)
    (other_loss, _), other_gradient = compiled_gradient(learner.agent, rule, other_targets, other)
    np.testing.assert_allclose(other_loss, loss, rtol=1e-12)
    assert_trees_close(other_gradient, gradient, 1e-12)
    (loss_of_all, _), _ = compiled_gradient(learner.agent, rule, other_targets, unmasked)
    assert abs(loss_of_all - loss) > 1e-3, "the changes must matter where nothing is masked"


def test_the_loss_is_the_mean_over_the_mask(rule):
    learner, rollout = make_learner(rule), make_rollout()
    targets, _ = compiled_targets(rule, learner.agent, learner.rule_state, rollout)

    def loss_with(mask):
        masked = eqx.tree_at(lambda r: r.mask, rollout, mask)
        return compiled_gradient(learner.agent, rule, targets, masked)[0][0]

    first = jnp.zeros((T, B), bool).at[0, 0].set(True)
    both = first.at[3, 2].set(True)
    mean = 0.5 * (loss_with(first) + loss_with(both ^ first))
    np.testing.assert_allclose(loss_with(both), mean, rtol=1e-7)


def test_nothing_is_learned_from_a_rollout_that_is_all_masked(rule):
    learner, rollout = make_learner(rule), make_rollout()
    rollout = eqx.tree_at(lambda r: r.mask, rollout, jnp.zeros((T, B), bool))
    updated, metrics = compiled_update(rule, learner, rollout)
    assert metrics["loss"] == 0.0
    assert_trees_close(updated.agent, learner.agent, 0.0)


# --- Seams ---------------------------------------------------------------------------------------

SEAM = 2
"""The slot of the seam: `observation[SEAM]` is the last one of an episode cut by a time limit."""


def with_seam(rollout: Rollout) -> Rollout:
    """A seam in every environment, with nonsense for what did not happen in it."""
    return eqx.tree_at(
        lambda r: (r.seam, r.mask, r.terminal, r.reward),
        rollout,
        (
            rollout.seam.at[SEAM].set(True),
            rollout.mask.at[SEAM].set(False),
            rollout.terminal.at[SEAM].set(False),
            rollout.reward.at[SEAM].set(50.0),
        ),
    )


def cut(rollout: Rollout, start: int, end: int) -> Rollout:
    """The transitions from `start` to before `end`, and the observations around them."""
    return Rollout(
        observation=rollout.observation[start : end + 1],
        action=rollout.action[start:end],
        reward=rollout.reward[start:end],
        terminal=rollout.terminal[start:end],
        seam=rollout.seam[start:end],
        behaviour_logits=rollout.behaviour_logits[start : end + 1],
        mask=rollout.mask[start:end],
    )


def test_a_seam_cuts_the_values_like_the_end_of_a_rollout(rule):
    """Values before the seam bootstrap from its observation; those after know nothing of it."""
    learner, rollout = make_learner(rule), with_seam(make_rollout())
    state = learner.rule_state
    whole, _ = compiled_targets(rule, learner.agent, state, rollout)
    plain, _ = compiled_targets(rule, learner.agent, state, make_rollout())
    for start, end in ((0, SEAM), (SEAM + 1, T)):
        part, _ = compiled_targets(rule, learner.agent, state, cut(rollout, start, end))
        for name in ("q_target", "advantage", "q_td"):
            ours, expected = getattr(whole.values, name)[start:end], getattr(part.values, name)
            np.testing.assert_allclose(ours, expected, rtol=1e-10, err_msg=name)
    np.testing.assert_allclose(whole.values.q_target[SEAM], 50.0)  # its "reward", and no more
    difference = whole.values.q_target[:SEAM] - plain.values.q_target[:SEAM]
    assert np.abs(difference).max() > 1e-3, "the seam must make a difference"


def test_no_target_looks_through_a_seam(rule):
    """What the meta-network proposes before the seam has no gradient to what comes after it."""
    learner = make_learner(rule)

    @jax.jit
    @jax.grad
    def observation_gradient(observation, rollout):
        rollout = eqx.tree_at(lambda r: r.observation, rollout, observation)
        proposed = rule.targets(learner.agent, learner.rule_state, rollout)[0].proposed
        return sum(jnp.sum(x[:SEAM] ** 2) for x in jax.tree.leaves(proposed))

    plain, seamed = (
        np.abs(observation_gradient(r.observation, r)).max(axis=-1)
        for r in (make_rollout(), with_seam(make_rollout()))
    )
    assert (seamed[: SEAM + 1, 1:] > 0.0).all()  # environment 0 has an episode's end there
    assert (seamed[SEAM + 1 :] == 0.0).all()
    assert (plain[SEAM + 1 :, 1:] > 0.0).all(), "without a seam they do look ahead"


def test_a_seam_does_not_count_in_the_moments(rule):
    learner = make_learner(rule)
    rollout = with_seam(make_rollout())
    other = eqx.tree_at(lambda r: r.reward, rollout, rollout.reward.at[SEAM].set(-1e3))
    states = [
        compiled_targets(rule, learner.agent, learner.rule_state, r)[1] for r in (rollout, other)
    ]
    assert_trees_close(states[0].advantage, states[1].advantage)
    assert_trees_close(states[0].td, states[1].td)


# --- Meta-gradients ------------------------------------------------------------------------------


def test_no_leaf_of_the_rule_is_dead_after_two_updates(rule):
    """The sum of θ after two updates, differentiated through both of them by η."""
    learner, rollouts = make_learner(rule), stack([make_rollout(0), make_rollout(1)])

    @jax.jit
    @jax.grad
    def gradient(rule, weight):
        """Of the weighted sum of θ's sums after each of the updates."""

        def step(learner, rollout):
            learner, _ = update(rule, OPTIMISER, learner, rollout)
            return learner, sum(jnp.sum(x) for x in jax.tree.leaves(learner.agent))

        return weight @ jax.lax.scan(step, learner, rollouts)[1]

    assert dead_leaves(gradient(rule, np.array([0.0, 1.0]))) == []
    dead = dead_leaves(gradient(rule, np.array([1.0, 0.0])))
    memory = [name for name in named_leaves(rule) if ".rnn." in name or ".extra." in name]
    assert sorted(dead) == sorted(memory), "one update does not see what the meta-RNN learned"
