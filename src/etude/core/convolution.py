"""Convolutions and pooling that are as fast on a CPU as its matrix products, in loops too.

XLA's own convolution is fast forwards, but its gradient, inside a loop such as that over
minibatches, is up to thirty times slower than need be; so is the gradient of its pooling. Here
derivatives come from formulas of slices and matrix products, a few images at a time, so that what
is read stays in the processor's cache. Any order and mode of differentiation works.
Images are batch × height × width × channels.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Num

Image = Num[Array, "batch h w inputs"]
Result = Float[Array, "batch h2 w2 outputs"]
Kernel = Float[Array, "k1 k2 inputs outputs"]
Bias = Float[Array, " outputs"]
Convolution = Callable[[Image, Kernel, Bias], Result]

AT_ONCE = 32
"""Images that are worked on together,"""
SMALL, LARGE = 2**18, 2**20
"""unless they have fewer numbers than this all together, or more than that."""


def convolve(x: Image, w: Kernel, b: Bias, relu: bool = False) -> Result:
    """An odd-sized kernel at each pixel, with zeros beyond the edges: same size out as in. If
    `relu`, the images go through a ReLU first."""

    def forward(x, w, b):
        y = jax.lax.conv_general_dilated(
            _activated(x, w.dtype, relu),
            w,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y + jnp.broadcast_to(b, y.shape)

    def shifted(x, w, b):
        edges = [(k // 2, k // 2) for k in w.shape[:2]]
        x = jnp.pad(_activated(x, w.dtype, relu), [(0, 0), *edges, (0, 0)])
        return _sum_of_inputs(x, w, b)

    return _differentiated_as(forward, shifted)(x, w, b)


def convolve_strided(x: Image, w: Kernel, b: Bias, stride: int = 1, relu: bool = False) -> Result:
    """A kernel every `stride` pixels, which its size must be a multiple of, wherever it fits as a
    whole. If `relu`, the images go through a ReLU first.

    Blocks of stride × stride pixels count as one pixel with as many more channels; a stride of 1 is
    left.
    """

    def prepared(x, w):
        rows, columns = (
            (x.shape[i + 1] - w.shape[i]) // stride * stride + w.shape[i] for i in (0, 1)
        )
        x = _blocks(x[:, :rows, :columns], stride)  # before bytes become floats
        return _activated(x, w.dtype, relu), _by_blocks(w, stride)

    def forward(x, w, b):
        outputs = functools.partial(_sum_of_outputs, b=b)
        return by_parts(lambda x: outputs(*prepared(x, w)), x)

    def shifted(x, w, b):
        return _sum_of_inputs(*prepared(x, w), b)

    return _differentiated_as(forward, shifted)(x, w, b)


def max_pool(x: Float[Array, "batch h w c"]) -> Float[Array, "batch h2 w2 c"]:
    """The maximum over 3 × 3 pixels around every second one, as `reduce_window` with SAME has it.
    Where several are largest, they share the gradient."""
    for axis in (1, 2):
        size = -(-x.shape[axis] // 2)
        beyond = 2 * size + 1 - x.shape[axis]
        edges = [(0, 0)] * 4
        edges[axis] = (beyond // 2, beyond - beyond // 2)
        padded = jnp.pad(x, edges, constant_values=-jnp.inf)
        three = (jax.lax.slice_in_dim(padded, i, i + 2 * size - 1, 2, axis) for i in range(3))
        x = functools.reduce(jnp.maximum, three)
    return x


def by_parts(function: Callable[..., Array], *images: Array) -> Array:
    """A function of images, applied to a few of them at a time."""
    number = images[0].shape[0]
    size = _part(number, images[0].size // max(number, 1))
    if size >= number:
        return function(*images)
    parts = -(-number // size)

    def split(x: Array) -> Array:
        if beyond := parts * size - number:
            x = jnp.pad(x, [(0, beyond)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(parts, size, *x.shape[1:])

    results = jax.lax.map(lambda some: function(*some), tuple(map(split, images)))
    return results.reshape(parts * size, *results.shape[2:])[:number]


def _part(number: int, size: int) -> int:
    """How many images of this size to take together: a divisor of their number, if one is about
    right, since filling up the last part means copying all."""
    best = max(1, min(LARGE // max(size, 1), max(AT_ONCE, SMALL // max(size, 1))))
    if number <= 2 * best:
        return number
    divisors = [n for n in range(max(1, best // 5), best * 3 // 2 + 1) if number % n == 0]
    return min(divisors or [best], key=lambda n: abs(n - best))


def _differentiated_as(forward: Convolution, formula: Convolution) -> Convolution:
    """`forward`, with the derivatives of an equal `formula`, which are taken by parts. The formula
    is computed again where they are needed, so that nothing but the images need be kept."""
    convolution = jax.custom_jvp(forward)

    def jvp(primals, tangents):
        x, *parameters = primals
        dx, *directions = (
            jnp.zeros_like(p) if isinstance(t, SymbolicZero) else t
            for p, t in zip(primals, tangents, strict=True)
        )
        images = (x,) if isinstance(tangents[0], SymbolicZero) else (x, dx)

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def part(x, *dx):
            if dx:
                return jax.jvp(formula, (x, *parameters), (*dx, *directions))[1]
            along = functools.partial(formula, x)
            return jax.jvp(along, tuple(parameters), tuple(directions))[1]

        return convolution(*primals), by_parts(part, *images)

    convolution.defjvp(jvp, symbolic_zeros=True)
    return convolution


def _activated(x: Image, dtype: DTypeLike, relu: bool) -> Image:
    x = x.astype(dtype)
    return jax.nn.relu(x) if relu else x


def _offsets(x: Image, w: Kernel) -> list[tuple[int, int, slice, slice]]:
    """For each place in a kernel that is moved over images: the pixels it meets."""
    rows, columns = (x.shape[i + 1] - w.shape[i] + 1 for i in (0, 1))
    return [
        (i, j, slice(i, i + rows), slice(j, j + columns))
        for i in range(w.shape[0])
        for j in range(w.shape[1])
    ]


def _sum_of_inputs(x: Image, w: Kernel, b: Bias) -> Result:
    """The images are shifted, one product for each place of the kernel: its derivatives with
    respect to images and kernel are of the same kind."""
    parts = (x[:, rows, columns] @ w[i, j] for i, j, rows, columns in _offsets(x, w))
    y = functools.reduce(jnp.add, parts)
    return y + jnp.broadcast_to(b, y.shape)


def _sum_of_outputs(x: Image, w: Kernel, b: Bias) -> Result:
    """One product for all places of the kernel, the results of which are shifted."""
    offsets = _offsets(x, w)
    products = x @ jnp.concatenate([w[i, j] for i, j, *_ in offsets], axis=1)
    parts = zip(jnp.split(products, len(offsets), axis=-1), offsets, strict=True)
    y = functools.reduce(jnp.add, (y[:, rows, columns] for y, (*_, rows, columns) in parts))
    return y + jnp.broadcast_to(b, y.shape)


def _blocks(x: Image, size: int) -> Num[Array, "batch h2 w2 more"]:
    """Each size × size pixels as one pixel."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // size, size, w // size, size, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h // size, w // size, size * size * c)


def _by_blocks(w: Kernel, size: int) -> Float[Array, "k3 k4 more outputs"]:
    """A kernel over pixels as one over such blocks of them."""
    h, k, inputs, outputs = w.shape
    w = w.reshape(h // size, size, k // size, size, inputs, outputs).transpose(0, 2, 1, 3, 4, 5)
    return w.reshape(h // size, k // size, size * size * inputs, outputs)
