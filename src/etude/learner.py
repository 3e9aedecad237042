"""One agent update under a rule. Pure: jit it, vmap it, scan it, differentiate through it."""

from typing import Any, Generic, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from etude.agent import Agent
from etude.rules.base import Rule
from etude.types import Metrics, Rollout

RuleState = TypeVar("RuleState")


class Learner(eqx.Module, Generic[RuleState]):
    """All that changes when an agent learns."""

    agent: Agent
    optimiser_state: PyTree[Array]
    rule_state: RuleState

    @staticmethod
    def create(agent: Agent, rule: Rule, optimiser: optax.GradientTransformation) -> "Learner":
        return Learner(agent, optimiser.init(cast(Any, agent)), rule.init(agent))


def mean_loss(
    agent: Agent, rule: Rule, targets: PyTree, rollout: Rollout
) -> tuple[Float[Array, ""], Metrics]:
    """The mean of the rule's loss over the transitions that count."""
    loss, metrics = rule.loss(agent, targets, rollout)
    weight = rollout.mask.astype(loss.dtype)
    return jnp.sum(loss * weight) / (jnp.sum(weight) + 1e-8), metrics


def update(
    rule: Rule, optimiser: optax.GradientTransformation, learner: Learner, rollout: Rollout
) -> tuple[Learner, Metrics]:
    """Makes the rule's targets for the rollout and moves the agent one step towards them."""
    targets, rule_state = rule.targets(learner.agent, learner.rule_state, rollout)
    (loss, metrics), grads = jax.value_and_grad(mean_loss, has_aux=True)(
        learner.agent, rule, targets, rollout
    )
    old = cast(Any, learner.agent)  # Optax's types know no modules, though any tree will do
    updates, optimiser_state = optimiser.update(grads, learner.optimiser_state, old)
    agent = cast(Agent, optax.apply_updates(old, updates))
    metrics = {"loss": loss, "gradient_norm": norm(grads), **metrics}
    return Learner(agent, optimiser_state, rule_state), metrics


def norm(tree: PyTree[Array]) -> Float[Array, ""]:
    """Euclidean norm over all leaves, by dot products, which compile faster than reductions."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(tree)))
