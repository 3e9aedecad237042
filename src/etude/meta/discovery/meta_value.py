"""The meta-value function: how well an agent could have been expected to do, for the meta-loss."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from etude.core.agent import Agent, Heads, NetworkConfig
from etude.core.config import ConvKind
from etude.core.learner import norm
from etude.core.moments import Moments
from etude.core.optim import adam, apply_gradient
from etude.core.returns import signed_parabolic, vtrace
from etude.core.types import Metrics, Rollout


@dataclasses.dataclass(frozen=True)
class MetaValueConfig:
    torso: tuple[int, ...] = (256, 256)
    """Widths of the network's layers."""
    conv: tuple[int, ...] = ()
    """Channels of convolutions below them, and their kind, as an agent has them."""
    conv_kind: ConvKind = "residual"
    embedding: int = 16
    """Size of the vector that stands for each symbol."""
    discount: float = 0.997
    """γ of the values."""
    td_lambda: float = 0.95
    """λ of V-trace."""
    learning_rate: float = 3e-4
    """Step size of its optimiser, which has the form of the agent's."""
    learn: bool = True
    """Whether there are values at all: without, they are 0 and λ is 1, so that advantages are
    discounted returns up to the end of a rollout."""
    max_update: float = 1.0
    """Where each entry of the optimiser's step is clipped, before the learning rate."""

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return adam(self.learning_rate, self.max_update)


class Evaluation(eqx.Module):
    """What the meta-value function makes of a rollout."""

    value: Float[Array, "T1 B"]
    td: Float[Array, "T B"]
    advantage: Float[Array, "T B"]
    rho: Float[Array, "T B"]


class MetaValue(eqx.Module):
    """A value network with its optimiser, and running moments of advantages and TD errors.

    Its outputs are values squashed by h. It is a network like an agent's, with a value for its only
    head. Nothing here carries a gradient to the rule.
    """

    network: Agent
    optimiser_state: PyTree[Array]
    advantage: Moments
    td: Moments
    config: MetaValueConfig = eqx.field(static=True)

    @staticmethod
    def create(
        observation: PyTree, config: MetaValueConfig = MetaValueConfig(), *, key: PRNGKeyArray
    ) -> "MetaValue":
        """`observation`: arrays or `ShapeDtypeStruct`s of one observation, without batch axes."""
        shape = NetworkConfig(
            torso=config.torso,
            conv=config.conv,
            conv_kind=config.conv_kind,
            embedding=config.embedding,
        )
        network: PyTree = Agent(observation, 0, Heads(state={"value": 1}), shape, key=key)
        return MetaValue(
            network, config.optimiser.init(network), Moments.zero(), Moments.zero(), config
        )

    def evaluate(self, logits: Float[Array, "T1 B A"], rollout: Rollout) -> Evaluation:
        """V-trace for the policy given by `logits`."""
        return self._evaluate(_raw_values(self.network, rollout), logits, rollout)

    def _evaluate(
        self, raw: Float[Array, "T1 B"], logits: Float[Array, "T1 B A"], rollout: Rollout
    ) -> Evaluation:
        config, rho = self.config, rollout.importance_ratio(logits[:-1])
        value = signed_parabolic(raw) if config.learn else jnp.zeros_like(raw)
        discount, td_lambda = rollout.discount(config.discount), config.td_lambda
        td_lambda = td_lambda if config.learn else 1.0
        estimate = vtrace(value, rollout.reward, discount, rho, td_lambda)
        td = estimate.target - value[:-1]
        return jax.lax.stop_gradient(Evaluation(value, td, estimate.advantage, rho))

    def update(
        self, logits: Float[Array, "T1 B A"], rollout: Rollout
    ) -> tuple["MetaValue", Metrics]:
        """One step towards the V-trace targets; the TD errors are normalised, not the values."""
        logits = jax.lax.stop_gradient(logits)

        def loss(network: Agent):
            raw = _raw_values(network, rollout)
            evaluation = self._evaluate(raw, logits, rollout)
            td = _observe(self.td, evaluation.td, rollout)
            step = td.normalise(evaluation.td, subtract_mean=False) * self.config.learn
            error = raw[:-1] - jax.lax.stop_gradient(raw[:-1] + step)
            loss = rollout.mean(0.5 * jnp.square(error))
            metrics = {
                "value_loss": loss,
                "td": rollout.mean(evaluation.td),
                "td_rms": _root_mean_square(evaluation.td, rollout),
                "normalised_td": rollout.mean(step),
            }
            return loss, (td, evaluation.advantage, metrics)

        gradient, (td, advantage, metrics) = jax.grad(loss, has_aux=True)(self.network)
        network, state = apply_gradient(
            self.config.optimiser, gradient, self.optimiser_state, self.network
        )
        moments = _observe(self.advantage, advantage, rollout)
        metrics |= {"value_gradient_norm": norm(gradient)}
        return MetaValue(network, state, moments, td, self.config), metrics

    def observe(self, evaluation: Evaluation, rollout: Rollout) -> "MetaValue":
        """With the rollout's advantages in the running moments, and nothing else changed."""
        moments = _observe(self.advantage, evaluation.advantage, rollout)
        return eqx.tree_at(lambda v: v.advantage, self, moments)

    def judge(
        self, logits: Float[Array, "T1 B A"], rollout: Rollout
    ) -> tuple["MetaValue", Float[Array, "T B"], Metrics]:
        """Having observed the rollout, its advantages under the policy, normalised."""
        evaluation = self.evaluate(logits, rollout)
        observed = self.observe(evaluation, rollout)
        advantage = observed.advantage.normalise(evaluation.advantage)
        metrics = {
            "value": jnp.mean(evaluation.value),
            "advantage": rollout.mean(evaluation.advantage),
            "advantage_rms": _root_mean_square(evaluation.advantage, rollout),
            "normalised_advantage": rollout.mean(advantage),
            "importance_weight": rollout.mean(jnp.minimum(1.0, evaluation.rho)),
        }
        return observed, advantage, metrics


def _raw_values(network: Agent, rollout: Rollout) -> Float[Array, "T1 B"]:
    """The network's outputs: squashed values."""
    return network.predict(network.unroll(rollout))["value"][..., 0]


def _root_mean_square(x: Float[Array, "T B"], rollout: Rollout) -> Float[Array, ""]:
    return jnp.sqrt(rollout.mean(jnp.square(x)))


def _observe(moments: Moments, x: Float[Array, "T B"], rollout: Rollout) -> Moments:
    return moments.update(rollout.mean(x), rollout.mean(jnp.square(x)))
