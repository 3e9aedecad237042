"""The agent's optimiser: Adam, then the clip, then the learning rate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from etude.core.optim import AdamState, adam, scale_by_adam

pytestmark = pytest.mark.usefixtures("x64")

B1, B2, EPS = 0.9, 0.999, 1e-8


def parameters() -> dict[str, jax.Array]:
    return {"w": jnp.asarray([[1.0, -2.0], [0.5, 3.0]]), "b": jnp.asarray([0.1, -0.2])}


def gradients(count: int) -> list[dict[str, np.ndarray]]:
    """Random gradients of very different scales, one tree a step."""
    random = np.random.default_rng(0)
    return [
        {"w": 10.0**i * random.normal(size=(2, 2)), "b": random.normal(size=2)}
        for i in range(count)
    ]


def all_updates(optimiser: optax.GradientTransformation, grads) -> list:
    """The updates that a sequence of gradients leads to, parameters following along."""
    params, step = parameters(), jax.jit(optimiser.update)
    state, result = optimiser.init(params), []
    for g in grads:
        updates, state = step(g, state, params)
        params = optax.apply_updates(params, updates)
        result.append(updates)
    return result


def assert_trees_close(actual, expected) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), actual, expected)


def test_is_optax_adam_without_the_clip():
    grads = gradients(4)
    ours = all_updates(adam(1e-2, max_update=np.inf), grads)
    assert_trees_close(ours, all_updates(optax.adam(1e-2), grads))


def test_a_schedule_sets_the_learning_rate():
    schedule = optax.linear_schedule(1.0, 0.0, 4)
    grads = gradients(3)
    ours = all_updates(adam(schedule, max_update=np.inf), grads)
    assert_trees_close(ours, all_updates(optax.adam(schedule), grads))


def test_the_clip_comes_after_the_normalisation():
    """Both orders agree on most gradients; here are two where they do not."""
    step = jax.jit(adam(0.1).update)
    start = adam(0.1).init(jnp.asarray(0.0))

    # Late in training, 0.5 after no gradient at all. The clip leaves the gradient alone, but
    # Adam's step is 0.1·g / √(0.001·g² / (1 − 0.999¹⁰⁰⁰)) = 2.51 and is cut to 1.
    late = (AdamState(jnp.asarray(999, jnp.int32), start[0].mu, start[0].nu), *start[1:])
    assert 0.1 / np.sqrt(0.001 / (1.0 - B2**1000)) > 2.5
    update, _ = step(jnp.asarray(0.5), late)
    np.testing.assert_allclose(update, -0.1 * 1.0, rtol=1e-9)

    # At the start, 1 and then 100. Cut to 1 and 1 they would make a step of 1.
    _, state = step(jnp.asarray(1.0), start)
    update, _ = step(jnp.asarray(100.0), state)
    m = (0.1 * B1 * 1.0 + 0.1 * 100.0) / (1.0 - B1**2)
    n = (0.001 * B2 * 1.0 + 0.001 * 100.0**2) / (1.0 - B2**2)
    np.testing.assert_allclose(m / np.sqrt(n), 0.7508, atol=1e-4)
    np.testing.assert_allclose(update, -0.1 * m / (np.sqrt(n) + EPS), rtol=1e-9)


def test_each_entry_is_clipped_by_itself():
    optimiser = adam(1.0, max_update=0.25)
    params = {"x": jnp.zeros(3)}
    update, _ = jax.jit(optimiser.update)({"x": np.array([5.0, -5.0, 0.0])}, optimiser.init(params))
    np.testing.assert_allclose(update["x"], [-0.25, 0.25, 0.0])


def test_the_denominator_carries_no_gradient():
    """d/ds of two steps with gradients s·a and s·b, the denominators held constant."""
    a, b = 2.0, -1.0
    transform = scale_by_adam()

    def second_step(s):
        state = transform.init(jnp.asarray(0.0))
        _, state = transform.update(s * a, state)
        return transform.update(s * b, state)[0]

    value, slope = jax.jit(jax.value_and_grad(second_step))(jnp.asarray(1.0))
    numerator = ((1 - B1) * B1 * a + (1 - B1) * b) / (1 - B1**2)
    denominator = np.sqrt(((1 - B2) * B2 * a**2 + (1 - B2) * b**2) / (1 - B2**2)) + EPS
    np.testing.assert_allclose(value, numerator / denominator, rtol=1e-9)
    # The numerator is linear in s. A differentiated denominator would make the slope almost 0.
    np.testing.assert_allclose(slope, numerator / denominator, rtol=1e-9)


def test_the_moments_carry_gradient_from_step_to_step():
    """The second update depends on the first gradient through the first moment alone."""
    transform = scale_by_adam()

    def second_step(first):
        _, state = transform.update(first, transform.init(jnp.asarray(0.0)))
        return transform.update(jnp.asarray(1.0), state)[0]

    slope = jax.jit(jax.grad(second_step))(jnp.asarray(3.0))
    denominator = np.sqrt(((1 - B2) * B2 * 9.0 + (1 - B2)) / (1 - B2**2)) + EPS
    np.testing.assert_allclose(slope, (1 - B1) * B1 / (1 - B1**2) / denominator, rtol=1e-9)


def test_gradient_at_zero_gradient_is_finite():
    """A parameter that never had a gradient must not make the meta-gradient NaN."""
    transform = scale_by_adam()
    step = lambda g: transform.update(g, transform.init(g))[0]  # noqa: E731
    slope = jax.jit(jax.grad(step))(jnp.asarray(0.0))
    np.testing.assert_allclose(slope, 1.0 / EPS, rtol=1e-9)


def test_weight_decay_is_decoupled():
    """It joins after the clip and does not enter the moments: −lr·(clipped step + decay·w)."""
    params = {"x": jnp.asarray([10.0, -4.0])}
    grads = {"x": jnp.asarray([3.0, 1e-9])}
    plain, decayed = adam(0.1, 0.5), adam(0.1, 0.5, weight_decay=0.2)
    update, state = jax.jit(plain.update)(grads, plain.init(params), params)
    decayed_update, decayed_state = jax.jit(decayed.update)(grads, decayed.init(params), params)
    expected = update["x"] - 0.1 * 0.2 * params["x"]
    np.testing.assert_allclose(decayed_update["x"], expected, rtol=1e-9)
    assert_trees_close(decayed_state[0], state[0])


def test_weight_decay_is_optax_adamw_without_the_clip():
    grads = gradients(3)
    ours = all_updates(adam(1e-2, max_update=np.inf, weight_decay=0.3), grads)
    assert_trees_close(ours, all_updates(optax.adamw(1e-2, weight_decay=0.3), grads))
