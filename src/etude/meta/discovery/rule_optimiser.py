"""From the agents' meta-gradients to a step of the rule."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from etude.core.learner import norm
from etude.core.optim import scale_by_adam
from etude.core.rule import Rule
from etude.core.trees import choose
from etude.meta.discovery.config import DiscoverConfig, MetaAverage


class RuleUpdate(eqx.Module):
    """What some agents' meta-gradients say about the rule: the sum of their Adam steps, or of the
    gradients themselves."""

    total: Rule
    agents: Int[Array, ""]
    """How many meta-gradients were finite and are in the sum."""


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.isfinite(x).all() for x in floats]).all()


@dataclasses.dataclass(frozen=True)
class RuleOptimiser:
    """Adam on the rule: one for each agent, whose steps are averaged, or one on the mean of the
    agents' gradients. Whichever it is, what it sees is clipped first."""

    adam: optax.GradientTransformation
    average: MetaAverage

    @staticmethod
    def create(config: DiscoverConfig) -> "RuleOptimiser":
        clip = optax.clip_by_global_norm(config.meta_clip) if config.meta_clip else optax.identity()
        return RuleOptimiser(optax.chain(clip, scale_by_adam()), config.meta_average)

    def of_agent(self, rule: PyTree) -> PyTree[Array]:
        """Adam's first state for an agent; None if all agents share one."""
        return self.adam.init(rule) if self.average == "updates" else None

    def shared(self, rule: PyTree) -> PyTree[Array]:
        """Adam's first state for all agents; None if each has its own."""
        return self.adam.init(rule) if self.average == "gradients" else None

    def contribution(
        self, gradient: PyTree[Array], state: PyTree[Array], good: Bool[Array, ""]
    ) -> tuple[PyTree[Array], PyTree[Array]]:
        """What an agent adds to the sum, and its Adam's state: nothing, and the old one, if the
        gradient is not `good`."""
        nothing = jax.tree.map(jnp.zeros_like, gradient)
        gradient = choose(good, gradient, nothing)
        if self.average == "gradients":
            return gradient, None
        update, after = self.adam.update(gradient, state)
        return choose(good, update, nothing), choose(good, after, state)

    def step(
        self,
        rule: Rule,
        update: RuleUpdate,
        state: PyTree[Array],
        learning_rate: Float[Array, ""] | float,
    ) -> tuple[Rule, PyTree[Array], Float[Array, ""]]:
        """The rule after a step along the mean over all agents, the state of the Adam that they
        share, and the norm of the step."""
        agents = update.agents
        share = 1.0 / jnp.maximum(agents, 1)
        direction = jax.tree.map(lambda total: share.astype(total.dtype) * total, update.total)
        if self.average == "gradients":
            some, nothing = agents > 0, jax.tree.map(jnp.zeros_like, direction)
            step, after = self.adam.update(direction, state)
            direction, state = choose(some, step, nothing), choose(some, after, state)
        moved = jax.tree.map(lambda x: (learning_rate * x).astype(x.dtype), direction)
        return jax.tree.map(jnp.subtract, rule, moved), state, norm(moved)
