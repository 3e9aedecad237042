"""η of a residual rule: what it adds to an actor-critic, all of it nothing at the start."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from etude.core.nn import Linear, action_block, action_layer
from etude.core.returns import discounted_sum
from etude.rules.residual.reading import ACTION_INPUTS, LIFE_INPUTS, STATE_INPUTS

MEMORY = 20.0
"""The longest of the times, in steps, that units remember for at the start."""


class ResidualNetwork(eqx.Module):
    """What is added to the gradient of each action's logit: the same map for every action, so that
    their order and number do not matter. It sees the state and the agent's age as they are, and
    what comes later in an episode as summed up backward, by units whose memory depends on both."""

    actions: Linear
    states: Linear
    life: Linear
    mix: Linear
    out: Linear

    def __init__(self, channels: int, hidden: int, mixed: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        self.actions = action_layer(len(ACTION_INPUTS), channels, key=keys[0])
        states = Linear(len(STATE_INPUTS) + 2 * channels, 2 * hidden, key=keys[1])
        times = jax.random.uniform(keys[2], (hidden,), minval=1.0, maxval=MEMORY)
        bias = states.b.at[hidden:].set(jnp.log(times))
        self.states = eqx.tree_at(lambda x: x.b, states, bias)
        self.life = Linear(len(LIFE_INPUTS), hidden, key=keys[3])
        beside = hidden + len(STATE_INPUTS) + len(LIFE_INPUTS)
        self.mix = action_layer(beside + channels, mixed, key=keys[4])
        self.out = Linear(mixed, 1, key=keys[5], std=0.0)

    def __call__(
        self,
        by_action: Float[Array, "T B A actions"],
        by_state: Float[Array, "T B states"],
        life: Float[Array, " life"],
        action: Int[Array, "T B"],
        ends: Bool[Array, "T B"],
    ) -> Float[Array, "T B A"]:
        by_action = action_block(self.actions, by_action)
        taken = jnp.take_along_axis(by_action, action[..., None, None], axis=2)[..., 0, :]
        pooled = [by_state, taken, jnp.mean(by_action, axis=2)]
        new, gate = jnp.split(self.states(jnp.concatenate(pooled, axis=-1)), 2, axis=-1)
        kept = jax.nn.sigmoid(gate + jnp.broadcast_to(self.life(life), gate.shape))
        passed_on = jnp.where(ends[..., None], 0.0, kept)
        summed = discounted_sum((1.0 - kept) * new, passed_on)
        age = jnp.broadcast_to(life, (*by_state.shape[:-1], *life.shape))
        beside = jnp.concatenate([summed, by_state, age], axis=-1)
        raw = self.out(action_block(self.mix, by_action, beside=beside))[..., 0]
        return raw - jnp.mean(raw, axis=-1, keepdims=True)  # the mean moves no probability


FARTHEST = math.log(10.0)
"""The most that a multiplier goes up or down: a factor of ten."""


class Multipliers(NamedTuple):
    """What an update's settings are multiplied by, all logarithms: of the step size, of the weight
    of entropy, and of λ/(1 − λ)."""

    step: Float[Array, ""]
    entropy: Float[Array, ""]
    trace: Float[Array, ""]


class Schedule(eqx.Module):
    """How settings change over an agent's life."""

    hidden: Linear
    out: Linear

    def __init__(self, hidden: int, *, key: PRNGKeyArray):
        hidden_key, out_key = jax.random.split(key)
        self.hidden = Linear(len(LIFE_INPUTS), hidden, key=hidden_key)
        self.out = Linear(hidden, len(Multipliers._fields), key=out_key, std=0.0)

    def __call__(self, life: Float[Array, " life"]) -> Multipliers:
        raw = self.out(jnp.tanh(self.hidden(life)))
        step, entropy, trace = FARTHEST * jnp.tanh(raw / FARTHEST)
        return Multipliers(step, entropy, trace)


def shifted_trace(trace: float, by: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """How much λ changes when log λ/(1 − λ) does: of 0, exactly 0."""
    grown = jnp.expm1(by)
    return trace * (1.0 - trace) * grown / (1.0 + trace * grown)
