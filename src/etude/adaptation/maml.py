"""MAML and E-MAML: an initial policy from which one policy-gradient step goes far.

θ plays some episodes τ̄ of a task, a step U(θ, τ̄) of policy gradient follows, and what counts is
the return of the policy after it. MAML (arXiv 1703.03400) differentiates that through the step.
E-MAML (arXiv 1803.01118) adds what MAML leaves out: θ also chose where τ̄ was sampled.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from etude.adaptation.config import Surrogate
from etude.adaptation.episodes import Episodes, policy_of
from etude.core.agent import Agent
from etude.core.returns import clipped_objective


def surrogate_loss(
    agent: Agent, episodes: Episodes, advantage: Float[Array, "T N"], kind: Surrogate
) -> Float[Array, ""]:
    """A loss whose gradient is the policy gradient; its further derivatives are what differs.

    - plain: −log π·A. Its Hessian leaves out how θ changes where one samples.
    - lvc: −(π/π̄)·A with π̄ = π held constant, low in variance (ProMP, arXiv 1810.06784). Where a
      batch is learned from several times, its actions count as those of the policy as it is then.
    - dice: the ratio of all actions up to this one, less that of all before it, times A (Loaded
      DiCE, arXiv 1909.10549): unbiased in all orders if A is, and noisy.

    The mean is over episodes; steps add up.
    """
    weight = likelihood = episodes.log_likelihood(policy_of(agent))
    if kind == "lvc":
        weight = _one(likelihood)
    elif kind == "dice":
        so_far = jnp.cumsum(likelihood, axis=0)
        weight = _one(so_far) - _one(so_far - likelihood)
    return -jnp.mean(jnp.sum(jnp.where(episodes.mask, weight * advantage, 0.0), axis=0))


def _one(log_likelihood: Float[Array, "T N"]) -> Float[Array, "T N"]:
    """1, with the derivatives of the likelihood relative to itself."""
    return jnp.exp(log_likelihood - jax.lax.stop_gradient(log_likelihood))


def adapt(
    agent: Agent,
    rates: PyTree[Float[Array, ""]],
    episodes: Episodes,
    advantage: Float[Array, "T N"],
    kind: Surrogate = "plain",
    first_order: bool = False,
) -> Agent:
    """U(θ, τ̄): one step of gradient descent, with a rate for each leaf."""
    gradient = jax.grad(surrogate_loss)(agent, episodes, advantage, kind)
    if first_order:
        gradient = jax.lax.stop_gradient(gradient)
    return jax.tree.map(lambda x, g, rate: x - rate * g, agent, gradient, rates)


def clipped_loss(
    agent: Agent, episodes: Episodes, advantage: Float[Array, "T N"], clip: float
) -> Float[Array, ""]:
    """PPO's, over all steps that count."""
    likelihood = episodes.log_likelihood(policy_of(agent))
    return -episodes.mean(clipped_objective(likelihood, episodes.log_prob, advantage, clip))


def exploration_loss(
    agent: Agent, episodes: Episodes, credit: Float[Array, ""], clip: float
) -> Float[Array, ""]:
    """E-MAML's term: the actions before the update are paid by the outcome after it, `credit`, as
    far as the policy has not yet gone from the one that played.

    Steps add up and so do episodes, as in the gradient of the expected outcome itself.
    """
    likelihood = episodes.log_likelihood(policy_of(agent))
    paid = jnp.broadcast_to(credit, likelihood.shape)
    gain = clipped_objective(likelihood, episodes.log_prob, paid, clip)
    return -jnp.sum(jnp.where(episodes.mask, gain, 0.0))
