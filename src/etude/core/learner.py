"""One agent update under a rule. Pure: jit it, vmap it, scan it, differentiate through it."""

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from etude.core.agent import Agent
from etude.core.kept import keep
from etude.core.optim import apply_gradient
from etude.core.players import Player
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout

RuleState = TypeVar("RuleState")
Tree = TypeVar("Tree")


class Learner(eqx.Module, Generic[RuleState]):
    """All that changes when an agent learns."""

    agent: Agent
    optimiser_state: PyTree[Array]
    rule_state: RuleState

    @staticmethod
    def create(
        agent: Agent,
        rule: Rule,
        optimiser: optax.GradientTransformation,
        updates: int | None = None,
    ) -> "Learner":
        """A new learner; `updates` are those of its whole life, if they are known."""
        state = rule.init(agent)
        state = state if updates is None else rule.expect(state, updates)
        return Learner(agent, optimiser.init(cast(Any, agent)), state)

    def player(self, rule: Rule) -> Player:
        """Who acts for the agent as it now is."""
        return rule.player(self.agent, self.rule_state)


def mean_loss(
    agent: Agent, rule: Rule, targets: PyTree, rollout: Rollout
) -> tuple[Float[Array, ""], Metrics]:
    """The mean of the rule's loss over the transitions that count."""
    loss, metrics = rule.loss(agent, targets, rollout)
    weight = rollout.mask.astype(loss.dtype)
    return jnp.sum(loss * weight) / (jnp.sum(weight) + 1e-8), metrics


def loss_gradient(
    agent: Agent, rule: Rule, targets: PyTree, rollout: Rollout
) -> tuple[Agent, Metrics]:
    """The gradient of `mean_loss` with respect to the agent, and scalars to log, which carry no
    gradient."""
    (loss, metrics), gradient = jax.value_and_grad(mean_loss, has_aux=True)(
        agent, rule, targets, rollout
    )
    return gradient, jax.lax.stop_gradient({"loss": loss, **metrics})


Gradient = Callable[[Agent, Rule, PyTree, Rollout], tuple[Agent, Metrics]]
"""A way to compute what `loss_gradient` computes: discovery knows one that is cheaper to
differentiate."""


def update(
    rule: Rule, optimiser: optax.GradientTransformation, learner: Learner, rollout: Rollout
) -> tuple[Learner, Metrics]:
    """Makes the rule's targets for the rollout and moves the agent one step towards them."""
    targets, rule_state = rule.targets(learner.agent, learner.rule_state, rollout)
    agent, optimiser_state, metrics = descend(rule, optimiser, learner, targets, rollout)
    return Learner(agent, optimiser_state, rule_state), metrics


@dataclasses.dataclass(frozen=True)
class Passes:
    """How often an update goes over its rollout, and in how many parts."""

    epochs: int = 1
    minibatches: int = 1
    """Equal parts of the trajectories, drawn anew in each epoch."""

    @property
    def descents(self) -> int:
        return self.epochs * self.minibatches

    def update(
        self,
        rule: Rule,
        optimiser: optax.GradientTransformation,
        learner: Learner,
        rollout: Rollout,
        key: PRNGKeyArray,
    ) -> tuple[Learner, Metrics]:
        """Makes the rule's targets once, and descends towards them with each minibatch in turn. The
        metrics are means over the descents."""
        if self.descents == 1:
            return update(rule, optimiser, learner, rollout)
        targets, rule_state = rule.targets(learner.agent, learner.rule_state, rollout)
        batch = rollout.action.shape[1]
        if batch % self.minibatches:
            raise ValueError(f"{batch} trajectories do not make {self.minibatches} equal parts")

        def step(learner: Learner, chosen: Int[Array, " part"]):
            part, aims = (take_trajectories(x, chosen, batch) for x in (rollout, targets))
            agent, optimiser_state, metrics = descend(rule, optimiser, learner, aims, part)
            return Learner(agent, optimiser_state, learner.rule_state), metrics

        shuffle = jax.vmap(lambda key: jax.random.permutation(key, batch))
        orders = shuffle(jax.random.split(key, self.epochs)).reshape(self.descents, -1)
        learner, metrics = jax.lax.scan(step, learner, orders)
        learner = Learner(learner.agent, learner.optimiser_state, rule_state)
        return learner, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics)


def take_trajectories(tree: Tree, chosen: Int[Array, " part"], batch: int) -> Tree:
    """Some of the `batch` trajectories of a rollout or its targets, along the second axis. What has
    no such axis, like a number that all share, stays as it is."""

    def take(x):
        by_trajectory = jnp.ndim(x) >= 2 and x.shape[1] == batch
        return jnp.take(x, chosen, axis=1) if by_trajectory else x

    return jax.tree.map(take, tree)


def descend(
    rule: Rule,
    optimiser: optax.GradientTransformation,
    learner: Learner,
    targets: PyTree,
    rollout: Rollout,
    gradient: Gradient = loss_gradient,
) -> tuple[Agent, PyTree[Array], Metrics]:
    """The agent and its optimiser after a step towards the targets. Metrics carry no gradient."""
    grads, metrics = gradient(learner.agent, rule, targets, rollout)
    grads = keep(grads)
    scale = rule.step_scale(targets)
    agent, optimiser_state = apply_gradient(
        optimiser, grads, learner.optimiser_state, learner.agent, scale
    )
    moved = jax.tree.map(jnp.subtract, agent, learner.agent)
    metrics = {"gradient_norm": norm(grads), "update_norm": norm(moved), **metrics}
    return agent, optimiser_state, jax.lax.stop_gradient(metrics)


def norm(tree: PyTree[Array]) -> Float[Array, ""]:
    """Euclidean norm over all leaves, by dot products, which compile faster than reductions."""
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(tree)))
