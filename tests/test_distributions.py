"""Categorical distributions against NumPy, and the KL's own derivatives against autodiff's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core.distributions import entropy, kl_divergence, log_prob, select_action

pytestmark = pytest.mark.usefixtures("x64")


def logits_pair(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of random logits."""
    p, q = np.random.default_rng(0).normal(scale=2.0, size=(2, *shape))
    return p, q


def softmax(x: np.ndarray) -> np.ndarray:
    weight = np.exp(x)
    return weight / weight.sum(axis=-1, keepdims=True)


def plain_kl(p_logits, q_logits):
    """KL(p‖q) in the textbook's form, for autodiff to differentiate."""
    p, q = jax.nn.softmax(p_logits), jax.nn.softmax(q_logits)
    return jnp.sum(p * jnp.log(p / q), axis=-1)


def test_kl_by_hand():
    """KL of (½, ½) from (¼, ¾) is ½ log 2 + ½ log ⅔."""
    kl = jax.jit(kl_divergence)(np.log([0.5, 0.5]), np.log([0.25, 0.75]))
    np.testing.assert_allclose(kl, 0.5 * np.log(2.0) + 0.5 * np.log(2.0 / 3.0), rtol=1e-12)


def test_kl_against_numpy():
    p_logits, q_logits = logits_pair(3, 2, 5)
    p, q = softmax(p_logits), softmax(q_logits)
    expected = (p * (np.log(p) - np.log(q))).sum(axis=-1)
    np.testing.assert_allclose(jax.jit(kl_divergence)(p_logits, q_logits), expected, rtol=1e-10)


def test_kl_of_a_distribution_from_itself_is_zero():
    p, _ = logits_pair(4)
    value, gradient = jax.jit(jax.value_and_grad(kl_divergence, argnums=1))(p, p + 3.0)
    np.testing.assert_allclose(value, 0.0, atol=1e-14)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-14)


def ours_and_plain(derivative, *inputs):
    """A derivative of our KL and the same one of the plain formula, both compiled."""
    return (jax.jit(derivative(f))(*inputs) for f in (kl_divergence, plain_kl))


@pytest.mark.parametrize("argument", [0, 1])
def test_kl_gradient_in_each_argument_alone(argument):
    """One argument constant: the derivative of the other must not be lost with it."""
    weight = np.array([1.0, -2.0])
    ours, plain = ours_and_plain(
        lambda f: jax.grad(lambda p, q: weight @ f(p, q), argnums=argument), *logits_pair(2, 5)
    )
    np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-12)


def test_kl_gradient_in_both_arguments():
    ours, plain = ours_and_plain(lambda f: jax.grad(f, argnums=(0, 1)), *logits_pair(5))
    np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-12)


def test_kl_forward_mode():
    ours, plain = ours_and_plain(
        lambda f: lambda p, q: jax.jvp(f, (p, q), (q, p))[1], *logits_pair(2, 5)
    )
    np.testing.assert_allclose(ours, plain, rtol=1e-9)


def test_kl_hessian():
    """All four blocks: by p and p, p and q, q and p, q and q."""
    ours, plain = ours_and_plain(lambda f: jax.hessian(f, argnums=(0, 1)), *logits_pair(4))
    np.testing.assert_allclose(ours, plain, rtol=1e-8, atol=1e-12)
    assert (np.abs(ours).max(axis=(2, 3)) > 1e-3).all(), "a block is dead"


def test_kl_forward_over_reverse():
    """The Hessian-vector product that cheap meta-gradients use."""
    v, w = np.random.default_rng(1).normal(size=(2, 5))
    ours, plain = ours_and_plain(
        lambda f: lambda p, q: jax.jvp(jax.grad(f, argnums=(0, 1)), (p, q), (v, w))[1],
        *logits_pair(5),
    )
    np.testing.assert_allclose(ours, plain, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("argument", [0, 1])
def test_kl_forward_over_reverse_with_one_argument_constant(argument):
    """Gradient and perturbation in one argument, as in a loss whose targets are constants."""

    def product(f):
        def of_pair(*pair):
            vary = lambda x: f(x, pair[1]) if argument == 0 else f(pair[0], x)  # noqa: E731
            return jax.jvp(jax.grad(vary), (pair[argument],), (pair[1 - argument],))[1]

        return of_pair

    ours, plain = ours_and_plain(product, *logits_pair(5))
    np.testing.assert_allclose(ours, plain, rtol=1e-8, atol=1e-12)


def test_kl_derivatives_survive_extreme_logits():
    p, q = np.array([500.0, 0.0, -500.0]), np.array([-500.0, 0.0, 500.0])
    value, gradients = jax.jit(jax.value_and_grad(kl_divergence, argnums=(0, 1)))(p, q)
    np.testing.assert_allclose(value, 1000.0)
    np.testing.assert_allclose(gradients[1], [-1.0, 0.0, 1.0], atol=1e-12)
    assert np.isfinite(gradients[0]).all()


def test_entropy_against_numpy():
    logits, _ = logits_pair(3, 4)
    p = softmax(logits)
    actual = jax.jit(entropy)(logits)
    np.testing.assert_allclose(actual, -(p * np.log(p)).sum(axis=-1), rtol=1e-10)


def test_entropy_of_uniform_logits_is_the_log_of_their_number():
    np.testing.assert_allclose(jax.jit(entropy)(np.full(8, 2.0)), np.log(8.0), rtol=1e-12)


def test_log_prob_against_numpy():
    logits, _ = logits_pair(2, 3, 4)
    action = np.array([[0, 1, 3], [2, 0, 1]])
    expected = np.log(softmax(logits))[np.arange(2)[:, None], np.arange(3), action]
    np.testing.assert_allclose(jax.jit(log_prob)(logits, action), expected, rtol=1e-10)


def test_select_action_picks_the_taken_entry():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jax.jit(select_action)(x, np.array([2, 0])), [2.0, 3.0])
