"""MAML and E-MAML: an initial policy from which one policy-gradient step goes far.

θ plays some episodes τ̄ of a task, a step U(θ, τ̄) of policy gradient follows, and what counts is
the return of the policy after it. MAML (arXiv 1703.03400) differentiates that through the step.
E-MAML (arXiv 1803.01118) adds what MAML leaves out: θ also chose where τ̄ was sampled.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from etude.core.agent import Agent
from etude.core.distributions import entropy, log_prob
from etude.core.learner import Gradient, Learner, descend, loss_gradient
from etude.core.returns import clipped_objective
from etude.core.types import Metrics, Rollout
from etude.meta.problem import Problem
from etude.rules.policy_gradient import PolicyGradient, PolicyGradientTargets


class Start(eqx.Module):
    """What MAML learns: the policy that every task starts from, and how far its steps go."""

    agent: Agent
    log_rates: PyTree[Float[Array, ""]]

    @property
    def rates(self) -> PyTree[Float[Array, ""]]:
        return jax.tree.map(jnp.exp, self.log_rates)


class Lesson(eqx.Module):
    """Episodes of a task, one per trajectory, and what is to be learned from them."""

    rollout: Rollout
    targets: PolicyGradientTargets
    credit: Float[Array, "*steps"]
    """What E-MAML pays for having played these episodes: the outcome after adapting to them."""

    @property
    def returns(self) -> Float[Array, "*steps B"]:
        return jnp.sum(self.rollout.reward, axis=-2)


@dataclasses.dataclass(frozen=True)
class Adaptation(Problem[Start, Agent, Float[Array, ""]]):
    """The return on a task after steps of policy gradient from a learned start."""

    rule: PolicyGradient
    learn_rates: bool = False
    first_order: bool = False
    exploration: float = 0.0
    """The weight of E-MAML's term; 0 is MAML."""
    clip: float = 0.2
    entropy_cost: float = 0.01

    def begin(self, params: Start, state: Agent) -> Agent:
        return params.agent

    def inner(
        self, params: Start, state: Agent, experience: Lesson, gradient: Gradient = loss_gradient
    ) -> tuple[Agent, Float[Array, ""]]:
        """One step of gradient descent, and the loss of E-MAML's term: the actions before the step
        are paid by the outcome after it."""
        rollout, exploring = experience.rollout, jnp.zeros(())
        if self.exploration:
            credit = jnp.broadcast_to(experience.credit, rollout.reward.shape)
            exploring = self._clipped_loss(state.logits(rollout)[:-1], rollout, credit)
        rates = params.rates if self.learn_rates else jax.lax.stop_gradient(params.rates)
        # A mean over the whole horizon: episodes that end early make for smaller steps.
        played = jnp.mean(rollout.mask.astype(rollout.reward.dtype))
        optimiser = descent(jax.tree.map(lambda rate: rate * played, rates))
        agent, _, _ = descend(
            self.rule,
            optimiser,
            Learner(state, optimiser.init({}), None),
            experience.targets,
            rollout,
            constant(gradient) if self.first_order else gradient,
        )
        return agent, exploring

    def outer(
        self, params: Start, state: Agent, aux: Float[Array, " steps"], experience: Lesson
    ) -> tuple[Float[Array, ""], tuple[Agent, Metrics]]:
        rollout, exploring = experience.rollout, jnp.sum(aux)
        logits = state.logits(rollout)[:-1]
        loss = self._clipped_loss(logits, rollout, experience.targets.weight)
        bonus = rollout.mean(entropy(logits))
        total = loss + self.exploration * exploring - self.entropy_cost * bonus
        return total, (state, {"loss": total, "exploration_loss": exploring, "entropy": bonus})

    def _clipped_loss(
        self, logits: Float[Array, "T B A"], rollout: Rollout, advantage: Float[Array, "T B"]
    ) -> Float[Array, ""]:
        """PPO's, in which the policy that played is the old one."""
        now = log_prob(logits, rollout.action)
        before = log_prob(rollout.behaviour_logits[:-1], rollout.action)
        return -rollout.mean(clipped_objective(now, before, advantage, self.clip))


def descent(rates: PyTree[Float[Array, ""]]) -> optax.GradientTransformation:
    """Gradient descent with a step size for each leaf, through which gradients flow."""
    return optax.stateless(
        lambda updates, _: jax.tree.map(lambda g, rate: -rate * g, updates, rates)
    )


def constant(gradient: Gradient) -> Gradient:
    """First-order MAML: the step does not depend on where it starts."""
    return lambda *args: jax.lax.stop_gradient(gradient(*args))
