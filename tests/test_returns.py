"""Returns against hand-computed numbers and against the textbook sums, written as NumPy loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from etude.core import returns

pytestmark = pytest.mark.usefixtures("x64")

vtrace = jax.jit(returns.vtrace)
retrace = jax.jit(returns.retrace)
lambda_returns = jax.jit(returns.lambda_returns)
gae = jax.jit(returns.gae)
categorical_mean = jax.jit(returns.categorical_mean, static_argnums=1)
two_hot_cross_entropy = jax.jit(returns.two_hot_cross_entropy, static_argnums=2)


def column(*numbers: float) -> np.ndarray:
    """The numbers as one environment's time series, [T, 1]."""
    return np.asarray(numbers, float)[:, None]


def assert_equal(actual, expected) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-11, atol=1e-11)


# --- Numbers worked out by hand ------------------------------------------------------------------


def test_vtrace_by_hand():
    result = vtrace(
        column(1.0, 2.0, 4.0), column(1.0, 3.0), column(0.5, 0.5), column(2.0, 0.5), 0.5
    )
    delta_1 = 0.5 * (3.0 + 0.5 * 4.0 - 2.0)  # 1.5, weighted by ρ = 0.5
    delta_0 = 1.0 * (1.0 + 0.5 * 2.0 - 1.0)  # 1.0, ρ = 2 being clipped to 1
    target_1 = 2.0 + delta_1  # 3.5
    target_0 = 1.0 + delta_0 + 0.5 * (0.5 * 1.0) * delta_1  # 2.375: γ·(λ min(1, ρ₀))·δ₁
    advantage_1 = 0.5 * (3.0 + 0.5 * 4.0 - 2.0)  # the last one looks to the value
    advantage_0 = 1.0 * (1.0 + 0.5 * (0.5 * 3.5 + 0.5 * 2.0) - 1.0)  # 1.375
    assert_equal(result.target, [[target_0], [target_1]])
    assert_equal(result.advantage, [[advantage_0], [advantage_1]])


def test_retrace_by_hand():
    result = retrace(
        column(10.0, 3.0, 5.0),  # q(a); the first is never used
        column(10.0, 2.0, 4.0, 8.0),  # v; the first is never used
        column(1.0, 2.0, 3.0),
        column(0.5, 0.5, 0.5),
        column(10.0, 0.5, 0.25),  # c; the first is never used
    )
    g_2 = 3.0 + 0.5 * 8.0  # 7
    g_1 = 2.0 + 0.5 * (4.0 - 0.25 * 5.0 + 0.25 * 7.0)  # 4.25
    g_0 = 1.0 + 0.5 * (2.0 - 0.5 * 3.0 + 0.5 * 4.25)  # 2.3125
    assert_equal(result, [[g_0], [g_1], [g_2]])


def test_retrace_stops_at_a_terminal():
    result = retrace(
        column(9.0, 9.0),
        column(9.0, 9.0, 8.0),
        column(1.0, 2.0),
        column(0.0, 0.5),
        column(1.0, 1.0),
    )
    assert_equal(result, [[1.0], [2.0 + 0.5 * 8.0]])


def test_lambda_returns_by_hand():
    result = lambda_returns(
        column(2.0, 4.0, 8.0), column(1.0, 2.0, 3.0), column(0.5, 0.5, 0.5), column(0.5, 0.25, 0.75)
    )
    g_2 = 3.0 + 0.5 * 8.0  # 7: λ does not matter at the last step
    g_1 = 2.0 + 0.5 * (0.75 * 4.0 + 0.25 * 7.0)  # 4.375
    g_0 = 1.0 + 0.5 * (0.5 * 2.0 + 0.5 * 4.375)  # 2.59375
    assert_equal(result, [[g_0], [g_1], [g_2]])


def test_gae_by_hand():
    result = gae(column(1.0, 2.0, 4.0), column(1.0, 3.0), column(0.5, 0.5), column(0.5, 0.9))
    delta_1 = 3.0 + 0.5 * 4.0 - 2.0  # 3
    delta_0 = 1.0 + 0.5 * 2.0 - 1.0  # 1
    assert_equal(result, [[delta_0 + 0.5 * 0.5 * delta_1], [delta_1]])


# --- The textbook's sums -------------------------------------------------------------------------


@st.composite
def trajectories(draw):
    """Random values, rewards, discounts (some 0: terminals) and trace parameters of T × B."""
    # Few different shapes, because each one compiles.
    shape = T, B = draw(st.sampled_from([(1, 1), (2, 1), (3, 2), (6, 2)]))

    def floats(low, high, shape=shape):
        return draw(arrays(float, shape, elements=st.floats(low, high, width=32)))

    terminal = draw(arrays(bool, shape))
    return {
        "values": floats(-10, 10, (T + 1, B)),
        "q": floats(-10, 10),
        "reward": floats(-5, 5),
        "discount": np.where(terminal, 0.0, floats(0.5, 1)),
        "rho": floats(0, 3),
        "trace": floats(0, 1),
        "lambda": draw(st.floats(0, 1)),
    }


def vtrace_sums(values, reward, discount, rho, lambda_):
    """v_s = V_s + Σ_t (Π_{i<t} γ_i c_i) δ_t, eq. 1 of arXiv 1802.01561, with c = λ min(1, ρ)."""
    T, clipped = len(reward), np.minimum(1.0, rho)
    delta = clipped * (reward + discount * values[1:] - values[:-1])
    target = values.copy()  # after the last transition, the value itself
    for s in range(T):
        for t in range(s, T):
            target[s] += np.prod(discount[s:t] * lambda_ * clipped[s:t], axis=0) * delta[t]
    bootstrap = lambda_ * target[1:] + (1.0 - lambda_) * values[1:]
    return target[:-1], clipped * (reward + discount * bootstrap - values[:-1])


def retrace_recursion(q, values, reward, discount, trace):
    """G_t = r + γ (v_{t+1} − c_{t+1} q_{t+1} + c_{t+1} G_{t+1}), and r + γ v at the last step."""
    target = reward + discount * values[1:]
    for t in reversed(range(len(reward) - 1)):
        after = values[t + 1] - trace[t + 1] * q[t + 1] + trace[t + 1] * target[t + 1]
        target[t] = reward[t] + discount[t] * after
    return target


def n_step_return(values_after, reward, discount, start, n):
    """n rewards from `start`, then the value after the last of them, all discounted."""
    total, weight = np.zeros_like(reward[0]), np.ones_like(reward[0])
    for t in range(start, start + n):
        total = total + weight * reward[t]
        weight = weight * discount[t]
    return total + weight * values_after[start + n - 1]


def lambda_return_mixture(values_after, reward, discount, lambda_):
    """The n-step returns, n weighted by the chance of going on n − 1 times and then stopping."""
    T, result = len(reward), np.zeros_like(reward)
    for t in range(T):
        for n in range(1, T - t + 1):
            go_on = np.prod(lambda_[t : t + n - 1], axis=0)
            stop = 1.0 if t + n == T else 1.0 - lambda_[t + n - 1]
            result[t] += go_on * stop * n_step_return(values_after, reward, discount, t, n)
    return result


def gae_sums(values, reward, discount, trace):
    """Â_t = Σ_l (γλ)^l δ_{t+l}, eq. 16 of arXiv 1506.02438."""
    delta = reward + discount * values[1:] - values[:-1]
    advantage = np.zeros_like(reward)
    for t in range(len(reward)):
        for end in range(t, len(reward)):
            advantage[t] += np.prod(discount[t:end] * trace[t:end], axis=0) * delta[end]
    return advantage


@given(trajectories())
def test_vtrace_is_the_papers_sum(x):
    result = vtrace(x["values"], x["reward"], x["discount"], x["rho"], x["lambda"])
    target, advantage = vtrace_sums(x["values"], x["reward"], x["discount"], x["rho"], x["lambda"])
    assert_equal(result.target, target)
    assert_equal(result.advantage, advantage)


@given(trajectories())
def test_retrace_is_the_spec_recursion(x):
    inputs = (x["q"], x["values"], x["reward"], x["discount"], x["trace"])
    assert_equal(retrace(*inputs), retrace_recursion(*inputs))


@given(trajectories())
def test_lambda_returns_mix_n_step_returns(x):
    inputs = (x["values"][1:], x["reward"], x["discount"], x["trace"])
    assert_equal(lambda_returns(*inputs), lambda_return_mixture(*inputs))


@given(trajectories())
def test_gae_is_the_papers_sum(x):
    inputs = (x["values"], x["reward"], x["discount"], x["trace"])
    assert_equal(gae(*inputs), gae_sums(*inputs))


@given(trajectories())
def test_vtrace_on_policy_is_the_bellman_return(x):
    """With ρ = 1 and λ = 1 the target is all rewards to the end, then the last value."""
    ones = np.ones_like(x["rho"])
    result = vtrace(x["values"], x["reward"], x["discount"], ones, 1.0)
    T = len(x["reward"])
    expected = [
        n_step_return(x["values"][1:], x["reward"], x["discount"], t, T - t) for t in range(T)
    ]
    assert_equal(result.target, expected)
    assert_equal(result.advantage, np.asarray(expected) - x["values"][:-1])


# --- Value transforms ----------------------------------------------------------------------------

NUMBERS = np.array([-1e5, -300.0, -1.0, -0.01, 0.0, 1e-3, 0.5, 2.0, 99.0, 1e4])


def test_signed_hyperbolic_by_hand():
    """h(3) = √4 − 1 + 0.003 and h(−8) = −(√9 − 1) − 0.008."""
    assert_equal(returns.signed_hyperbolic(jnp.asarray([3.0, -8.0, 0.0])), [1.003, -2.008, 0.0])


def test_signed_hyperbolic_and_parabolic_are_inverse():
    h, inverse = jax.jit(returns.signed_hyperbolic), jax.jit(returns.signed_parabolic)
    np.testing.assert_allclose(inverse(h(NUMBERS)), NUMBERS, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(h(inverse(NUMBERS)), NUMBERS, rtol=1e-9, atol=1e-9)


def test_signed_log():
    x = jnp.asarray([-(np.e - 1.0), 0.0, np.e**3 - 1.0])
    assert_equal(returns.signed_log(x), [-1.0, 0.0, 3.0])


# --- Categorical values --------------------------------------------------------------------------

BINS, MAX = 11, 5.0
"""Bins one apart: −5, −4, …, 5."""


def test_categorical_mean_of_a_two_hot():
    """A quarter on bin 1 and the rest on bin 2 is 1.75 in squashed space, whatever the offset."""
    probability = np.zeros(BINS)
    probability[5 + 1], probability[5 + 2] = 0.25, 0.75
    with np.errstate(divide="ignore"):
        logits = np.log(probability) + 7.0
    mean = categorical_mean(logits, MAX)
    assert_equal(returns.signed_hyperbolic(mean), 1.75)


def test_categorical_mean_of_uniform_logits_is_zero():
    assert_equal(categorical_mean(np.zeros((2, 3, BINS)), MAX), np.zeros((2, 3)))


def two_hot(value, num_bins, max_value):
    """Each value's projection on the two bins around h(value), in units of the bin width."""
    x = np.sign(value) * (np.sqrt(np.abs(value) + 1.0) - 1.0) + 1e-3 * value
    x = np.clip(x, -max_value, max_value) * (num_bins - 1) / (2.0 * max_value)
    result = np.zeros((len(x), num_bins))
    for row, position in zip(result, x, strict=True):
        lower = int(np.floor(position))
        share = (lower + 1 - position) / (1.0 + 1e-5)
        row[lower + num_bins // 2] += share
        row[min(lower + 1 + num_bins // 2, num_bins - 1)] += 1.0 - share
    return result


def values_to_project() -> np.ndarray:
    """Ordinary values, exact bins (both ends and zero among them), and values beyond the ends."""
    exact = jax.jit(returns.signed_parabolic)(np.array([-5.0, -2.0, 0.0, 1.0, 5.0]))
    return np.concatenate([NUMBERS, np.asarray(exact)])


def random_logits(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize(("num_bins", "max_value"), [(BINS, MAX), (21, 5.0), (601, 300.0)])
def test_two_hot_cross_entropy_and_its_gradient(num_bins, max_value):
    """The loss is −Σ target·log softmax, its gradient softmax − target."""
    value = values_to_project()
    logits = random_logits(len(value), num_bins)
    target = two_hot(value, num_bins, max_value)
    np.testing.assert_allclose(target.sum(axis=1), 1.0)

    @jax.jit
    def gradient_and_loss(logits, value):
        def total(logits):
            loss = returns.two_hot_cross_entropy(logits, value, max_value)
            return loss.sum(), loss

        return jax.grad(total, has_aux=True)(logits)

    gradient, loss = gradient_and_loss(logits, value)
    np.testing.assert_allclose(loss, -(target * log_softmax(logits)).sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(gradient, np.exp(log_softmax(logits)) - target, atol=1e-9)


def test_two_hot_target_carries_no_gradient():
    logits = random_logits(len(NUMBERS), BINS)
    gradient = jax.jit(jax.grad(lambda v: two_hot_cross_entropy(logits, v, MAX).sum()))(NUMBERS)
    assert_equal(gradient, np.zeros(len(NUMBERS)))


def test_two_hot_survives_extreme_logits():
    logits = np.array([[1e4] + [-1e4] * (BINS - 1)])
    loss, gradient = jax.jit(
        jax.value_and_grad(lambda x: two_hot_cross_entropy(x, np.zeros(1), MAX).sum())
    )(logits)
    np.testing.assert_allclose(loss, 2e4)  # all weight on a bin 2e4 below the peak
    assert np.isfinite(gradient).all()


def test_nothing_is_gained_beyond_the_clip():
    ratio = jnp.log(jnp.array([1.5, 1.5, 0.5, 0.5, 1.1]))
    advantage = jnp.array([2.0, -2.0, 2.0, -2.0, 1.0])
    ours = returns.clipped_objective(ratio, jnp.zeros(5), advantage, 0.2)
    np.testing.assert_allclose(ours, [2.4, -3.0, 1.0, -1.6, 1.1], rtol=1e-6)
