"""Fast convolutions and pooling against XLA's own, with derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.core import convolution
from etude.core.convolution import by_parts, convolve, convolve_strided, max_pool


def random(*shape: int, dtype=np.float64) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), dtype)


def xla(x, w, b, stride=1, relu=False, padding="VALID"):
    x = jax.nn.relu(x.astype(w.dtype)) if relu else x.astype(w.dtype)
    dimensions = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (stride, stride), padding, None, None, dimensions)
    return y + b[None, None, None]


CASES = {
    "same": (convolve, functools.partial(xla, padding="SAME"), (5, 7, 6, 2), (3, 3, 2, 4)),
    "same relu": (
        functools.partial(convolve, relu=True),
        functools.partial(xla, padding="SAME", relu=True),
        (5, 7, 6, 2),
        (3, 3, 2, 4),
    ),
    **{
        f"{size}x{size} by {stride} on {h}x{w}": (
            functools.partial(convolve_strided, stride=stride, relu=relu),
            functools.partial(xla, stride=stride, relu=relu),
            (5, h, w, 2),
            (size, size, 2, 3),
        )
        for size, stride, h, w, relu in [
            (8, 4, 20, 17, False),
            (4, 2, 9, 10, True),
            (3, 1, 5, 6, True),
        ]
    },
}


@pytest.fixture(params=["whole", "equal parts", "filled up"])
def parts(request, monkeypatch):
    """Five images at once, one at a time, or two at a time."""
    if request.param != "whole":
        size = 1 if request.param == "equal parts" else 2
        monkeypatch.setattr(convolution, "_part", lambda number, numbers: size)


@pytest.mark.usefixtures("x64", "parts")
@pytest.mark.parametrize("ours, theirs, shape, kernel", CASES.values(), ids=CASES.keys())
def test_convolutions_against_xla(ours, theirs, shape, kernel):
    """Values, gradients, and derivatives of gradients forwards and backwards."""
    arguments = random(*shape), random(*kernel), random(kernel[-1])
    directions = tuple(random(*x.shape) for x in arguments)

    def everything(convolution):
        def loss(*arguments):
            return jnp.sum(jnp.sin(convolution(*arguments)))

        gradient = jax.grad(loss, (0, 1, 2))

        def along(*arguments):
            pairs = zip(gradient(*arguments), directions, strict=True)
            return sum(jnp.vdot(a, b) for a, b in pairs)

        forwards = jax.jvp(gradient, arguments, directions)
        return convolution(*arguments), forwards, jax.grad(along, (0, 1, 2))(*arguments)

    results = (jax.jit(lambda f=f: everything(f))() for f in (ours, theirs))
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bytes_are_convolved_without_a_derivative_for_them(dtype):
    with jax.enable_x64(dtype == np.float64):
        image = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 12, 12, 2)), np.uint8)
        w, b = random(8, 8, 2, 3, dtype=dtype), random(3, dtype=dtype)
        gradients = [
            jax.jit(jax.grad(lambda w, f=f: jnp.sum(f(image, w, b, 4) ** 2)))(w)
            for f in (convolve_strided, xla)
        ]
    np.testing.assert_allclose(*gradients, rtol=1e-4 if dtype == np.float32 else 1e-10)


@pytest.mark.usefixtures("x64")
def test_agents_side_by_side_have_kernels_of_their_own():
    x, w, b = random(4, 3, 6, 6, 2), random(4, 3, 3, 2, 5), random(4, 5)
    both = [jax.vmap(f)(x, w, b) for f in (convolve, functools.partial(xla, padding="SAME"))]
    np.testing.assert_allclose(*both, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("height, width", [(6, 7), (5, 4), (1, 2), (9, 9)])
def test_max_pool_against_xla(height, width):
    """Without ties, derivatives are the same as well."""
    x = random(2, height, width, 3)

    def theirs(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    np.testing.assert_array_equal(max_pool(x), theirs(x))
    gradients = [jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x))))(x) for f in (max_pool, theirs)]
    np.testing.assert_allclose(*gradients, rtol=1e-12)


def test_ties_share_the_gradient_of_the_maximum():
    gradient = jax.grad(lambda x: jnp.sum(max_pool(x)))(jnp.zeros((1, 4, 4, 1)))
    np.testing.assert_allclose(jnp.sum(gradient), 4.0)
    assert (gradient >= 0.0).all()


@pytest.mark.parametrize(
    "number, size, part",
    [
        (256, 84 * 84 * 4, 32),
        (258, 84 * 84 * 4, 43),  # 129 × 2
        (258, 20 * 20 * 32, 43),
        (40, 84 * 84 * 4, 40),
        (1031, 84 * 84 * 4, 32),  # a prime number: the last part is filled up
        (2048, 10 * 10 * 4, 512),
        (64, 84 * 84 * 16, 8),
    ],
)
def test_images_are_taken_a_few_at_a_time(number, size, part):
    assert convolution._part(number, size) == part


@pytest.mark.usefixtures("parts")
def test_parts_are_put_together_again():
    x, y = random(5, 2, dtype=np.float32), random(5, 2, dtype=np.float32)
    np.testing.assert_array_equal(by_parts(lambda x, y: x - 2 * y, x, y), x - 2 * y)
