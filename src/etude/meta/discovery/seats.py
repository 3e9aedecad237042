"""The places of a population: an agent with its world and lifetime, and what outlives it."""

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int, Key, PRNGKeyArray, PyTree

from etude.acting.jax_source import Actors
from etude.core.types import Rollout
from etude.meta.discovery.problem import Lifetime
from etude.training.iteration import World

FOREVER = 2**31 - 1
"""The budget of an agent that is never reset."""


class Recent(eqx.Module):
    """The latest batches of an agent, for windows that overlap: the next one begins with them."""

    batches: Rollout
    """Stacked along a first axis."""
    known: Bool[Array, "*agents"]
    """Not of a newborn agent, whose first window is all new."""


class Member(eqx.Module):
    """An agent with its world. All of it starts anew when the agent's lifetime is over."""

    lifetime: Lifetime
    world: World
    validation_actors: Actors | None
    """None if they are outside JAX."""
    age: Int[Array, "*agents"]
    """Environment steps so far."""
    budget: Int[Array, "*agents"]
    """Environment steps of a whole lifetime."""
    recent: Recent | None
    """None if windows do not overlap."""
    task: PyTree[Array] = None
    """The parameters of its environment, if they are its own."""


class Seat(eqx.Module):
    """A place in the population, and what outlives the agents that sit there."""

    member: Member
    optimiser_state: PyTree[Array]
    """Adam's moments of this seat's meta-gradients; None if all seats share one Adam."""
    resets: Int[Array, "*agents"]
    skipped: Int[Array, "*agents"]
    """Meta-gradients that were not finite, and dropped."""
    key: Key[Array, "*agents"]


def step_keys(seat: Seat) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """Of a meta-step: for training, for validation, and the seat's next."""
    play_key, validation_key, key = jax.random.split(seat.key, 3)
    return play_key, validation_key, key
