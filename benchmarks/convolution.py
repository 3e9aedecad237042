"""Our convolutions against XLA's own, inside a compiled loop, as all training is.

    python -m benchmarks.convolution

Milliseconds per batch of 84 × 84 × 4 bytes, forward and with the gradient. The last line is one
JSON object. Run it with nothing else running.
"""

import json
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from unittest import mock

import jax
import jax.numpy as jnp
from jaxtyping import Array

from benchmarks.measure import measure
from etude.core.agent import Agent, Heads
from etude.core.config import NetworkConfig

NETWORKS = {
    "classic": (NetworkConfig((512,), (32, 64, 64), conv_kind="classic"), 256),
    "residual": (NetworkConfig((512,), (16, 32, 32)), 64),
}
LOOPS = 2


def with_xla(x: Array, w: Array, b: Array, stride: int, padding: str, relu: bool) -> Array:
    x = jax.nn.relu(x) if relu else x
    form = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=form)
    return y + jnp.broadcast_to(b, y.shape)


@contextmanager
def xlas_own():
    """Networks convolve and pool as XLA does."""

    def convolve(x, w, b, relu=False):
        return with_xla(x.astype(w.dtype), w, b, 1, "SAME", relu)

    def strided(x, w, b, stride=1, relu=False):
        return with_xla(x.astype(w.dtype), w, b, stride, "VALID", relu)

    def max_pool(x):
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME")

    home = "etude.core.nn."
    with (
        mock.patch(f"{home}convolve", convolve),
        mock.patch(f"{home}convolve_strided", strided),
        mock.patch(f"{home}max_pool", max_pool),
    ):
        yield


def milliseconds(network: str, backward: bool) -> float:
    config, batch = NETWORKS[network]
    images = jnp.zeros((batch, 84, 84, 4), jnp.uint8)
    agent = Agent(images[0], 6, Heads({"pi": 6}), config, key=jax.random.key(0))

    def loss(agent: Agent) -> Array:
        return jnp.mean(jnp.square(agent.act(None, images)[1]))

    def step(agent: Agent, _: None) -> tuple[Agent, Array]:
        if not backward:
            return jax.tree.map(lambda x: x * 0.999, agent), loss(agent)
        value, gradient = jax.value_and_grad(loss)(agent)
        return jax.tree.map(lambda x, g: x - 1e-3 * g, agent, gradient), value

    loop: Callable = lambda agent: jax.lax.scan(step, agent, length=LOOPS)  # noqa: E731
    return measure(loop, agent, repeats=3).ms / LOOPS


if __name__ == "__main__":
    results = {}
    for network in NETWORKS:
        for backward in (False, True):
            for name, way in (("ours", nullcontext), ("xla", xlas_own)):
                with way():
                    what = f"{network}_{'gradient' if backward else 'forward'}_{name}_ms"
                    results[what] = round(milliseconds(network, backward), 1)
                    print(f"{what:30} {results[what]}", flush=True)
    print(json.dumps(results))
