"""DiscoRL (Oh et al., Nature 2025): an agent's policy and predictions follow a meta-network."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from etude.core.agent import Agent, Heads
from etude.core.distributions import entropy, kl_divergence, select_action
from etude.core.kept import keep
from etude.core.moments import Moments
from etude.core.nn import LSTMState
from etude.core.returns import categorical_mean, retrace, two_hot_cross_entropy
from etude.core.rule import Loss, Rule
from etude.core.types import Predictions, Rollout
from etude.rules.disco.network import (
    MetaNetwork,
    NetworkInputs,
    ProposedTargets,
    Reading,
    ValueEstimates,
)
from etude.settings import check, is_odd_bins, require


@dataclasses.dataclass(frozen=True)
class DiscoConfig:
    """Sizes of the meta-network (the published ones by default) and constants of the update."""

    prediction: int = 600
    """Size of the predictions y and z."""
    hidden: int = 256
    """Units of the backward LSTM."""
    rnn: int = 128
    """Units of the meta-RNN."""
    embedding: int = 16
    """Hidden width of the networks that read y and z."""
    channels: tuple[int, ...] = (16, 2)
    """Channels of the action blocks."""
    pi_channels: int = 16
    """Channels of the policy target's action block."""
    bins: int = 601
    """Bins of the categorical action value; an odd number."""
    max_value: float = 300.0
    """Largest squashed value covered by the bins."""
    predictions: bool = True
    """Whether agents predict y and z, and the rule reads and aims them."""
    values: bool = True
    """Whether agents learn action values, and the rule reads them and advantages."""
    meta_rnn: bool = True
    """Whether the rule remembers an agent's lifetime."""
    discount: float = 0.997
    """γ of the action values."""
    td_lambda: float = 0.95
    """λ of Retrace."""
    target_decay: float = 0.9
    """Fraction of the target network kept at each update."""
    pi_cost: float = 1.0
    """Weight of KL(π̂‖π)."""
    y_cost: float = 1.0
    """Weight of KL(ŷ‖y)."""
    z_cost: float = 1.0
    """Weight of KL(ẑ‖z)."""
    aux_cost: float = 1.0
    """Weight of the prediction of the next policy."""
    value_cost: float = 0.2
    """Weight of the action-value loss."""
    target_mean_cost: float = 1e-3
    """Discovery: weight of the squared means of π̂, ŷ and ẑ, which a softmax does not see."""
    target_kl_cost: float = 1e-2
    """Discovery: weight of KL(π⁻‖π̂), which keeps the policy target near the policy."""
    prediction_entropy_cost: float = 1e-3
    """Discovery: weight of the entropies of y and z after the updates, which it raises."""

    def __post_init__(self):
        check(
            self,
            count="prediction hidden rnn embedding channels pi_channels",
            positive="max_value",
            share="discount td_lambda target_decay",
            cost="pi_cost y_cost z_cost aux_cost value_cost "
            "target_mean_cost target_kl_cost prediction_entropy_cost",
        )
        require(self, "bins", is_odd_bins, "an odd number from 3")


class DiscoState(eqx.Module):
    """What lives with an agent: the meta-RNN's memory, running moments, and θ⁻."""

    rnn: LSTMState
    advantage: Moments
    td: Moments
    target: Agent


class DiscoTargets(eqx.Module):
    proposed: ProposedTargets
    values: ValueEstimates


class Disco(Rule[DiscoState, DiscoTargets]):
    """The discovered rule: targets for π, y and z from the meta-network; q learns by Retrace."""

    searched = ("replay_share",)
    network: MetaNetwork
    config: DiscoConfig = eqx.field(static=True)

    def __init__(self, config: DiscoConfig = DiscoConfig(), *, key: PRNGKeyArray):
        self.config = config
        self.network = MetaNetwork(
            prediction=config.prediction,
            hidden=config.hidden,
            rnn=config.rnn,
            embedding=config.embedding,
            channels=config.channels,
            pi_channels=config.pi_channels,
            key=key,
        )

    def heads(self, num_actions: int) -> Heads:
        config, state, action = self.config, {"pi": num_actions}, {"p": num_actions}
        if config.predictions:
            state["y"] = action["z"] = config.prediction
        if config.values:
            action["q"] = config.bins
        return Heads(state=state, action=action, bins=("q",) if config.values else ())

    def init(self, agent: Agent) -> DiscoState:
        rnn = self.network.rnn.lstm.zero_state()
        # A copy, for buffers that are shared with the agent's could not be donated.
        return DiscoState(rnn, Moments.zero(), Moments.zero(), jax.tree.map(jnp.copy, agent))

    def targets(
        self, agent: Agent, state: DiscoState, rollout: Rollout
    ) -> tuple[DiscoTargets, DiscoState]:
        inputs, advantage, td = self.inputs(agent, state, rollout)
        values = inputs.values
        rnn = state.rnn if self.config.meta_rnn else None
        proposed, rnn = self.network(inputs, rnn, self.config.predictions)
        decay = self.config.target_decay
        target_agent = jax.tree.map(lambda t, a: decay * t + (1.0 - decay) * a, state.target, agent)
        rnn = state.rnn if rnn is None else rnn
        return DiscoTargets(proposed, values), DiscoState(keep(rnn), advantage, td, target_agent)

    def inputs(
        self, agent: Agent, state: DiscoState, rollout: Rollout
    ) -> tuple[NetworkInputs, Moments, Moments]:
        """What the meta-network reads, and the moments of advantages and TD errors afterwards."""
        online, target = self._read(agent, rollout), self._read(state.target, rollout)
        values, advantage, td = self._estimate_values(online, target, state, rollout)
        return NetworkInputs(rollout, online, target, values), advantage, td

    def _read(self, agent: Agent, rollout: Rollout) -> Reading:
        """What an agent does not predict reads as 0."""
        config = self.config

        def summarise(predictions: Predictions):
            nothing = jnp.zeros_like(rollout.behaviour_logits[..., 0])
            z, q = (nothing, nothing), nothing
            if config.predictions:
                z = self.network.embed_z(predictions["z"])
            if config.values:
                q = categorical_mean(jax.lax.stop_gradient(predictions["q"]), config.max_value)
            return z, q

        embedding = agent.unroll(rollout)
        prediction = agent.predict(embedding)
        z, q = agent.predict_actions(agent.consider(embedding), summarise)
        z, q = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), (z, q))
        y = jax.tree.map(lambda x: jnp.zeros_like(x[..., 0]), z)
        if config.predictions:
            y = self.network.embed_y(prediction["y"])
        return keep(Reading(prediction["pi"], y, z, q))

    def _estimate_values(
        self, online: Reading, target: Reading, state: DiscoState, rollout: Rollout
    ) -> tuple[ValueEstimates, Moments, Moments]:
        """Retrace with the target network's values under the online policy. No gradients; zeros if
        no values are learned."""
        pi = jax.lax.stop_gradient(jax.nn.softmax(online.pi))
        value = jnp.sum(pi * online.q, axis=-1)
        target_value = jnp.sum(pi * target.q, axis=-1)
        rho = rollout.importance_ratio(online.pi[:-1])
        q_target = retrace(
            select_action(target.q[:-1], rollout.action),
            target_value,
            rollout.reward,
            rollout.discount(self.config.discount),
            self.config.td_lambda * jnp.minimum(1.0, rho),
        )
        advantage = q_target - target_value[:-1]
        q_td = q_target - select_action(online.q[:-1], rollout.action)
        qv_advantage = target.q - target_value[..., None]
        moments = state.advantage.update(rollout.mean(advantage), rollout.mean(advantage**2))
        td_moments = state.td.update(rollout.mean(q_td), rollout.mean(q_td**2))
        estimates = ValueEstimates(
            value=value,
            target_q=target.q,
            q_target=q_target,
            q_td=q_td,
            advantage=advantage,
            normalised_advantage=moments.normalise(advantage),
            qv_advantage=qv_advantage,
            normalised_qv_advantage=moments.normalise(qv_advantage),
        )
        if not self.config.values:
            estimates = jax.tree.map(jnp.zeros_like, estimates)
        return jax.lax.stop_gradient((estimates, moments, td_moments))

    def loss(self, agent: Agent, targets: DiscoTargets, rollout: Rollout) -> Loss:
        config, proposed = self.config, targets.proposed
        # All T + 1 observations, though the last one's gradient is zero: `targets` computes the
        # same embeddings, and the compiler then does it once.
        embedding = agent.unroll(rollout)
        prediction = agent.predict(embedding)
        state = {name: x[:-1] for name, x in prediction.items()}
        start = jax.tree.map(lambda x: x[:-1], agent.consider(embedding))
        action = agent.predict_action(start, rollout.action)
        next_pi = jax.lax.stop_gradient(prediction["pi"][1:])
        goes_on = 1.0 - (rollout.terminal | rollout.seam).astype(embedding.dtype)

        terms = {"pi_loss": (config.pi_cost, kl_divergence(proposed.pi, state["pi"]))}
        spread = {"entropy": state["pi"]}
        if config.predictions:
            terms["y_loss"] = config.y_cost, kl_divergence(proposed.y, state["y"])
            terms["z_loss"] = config.z_cost, kl_divergence(proposed.z, action["z"])
            spread |= {"y_entropy": state["y"], "z_entropy": action["z"]}
        terms["aux_loss"] = config.aux_cost, kl_divergence(next_pi, action["p"]) * goes_on
        if config.values:
            q_target = targets.values.q_target
            q_loss = two_hot_cross_entropy(action["q"], q_target, config.max_value)
            terms["q_loss"] = config.value_cost, q_loss
        first, *others = (cost * x for cost, x in terms.values())
        entropies = {name: entropy(x) for name, x in jax.lax.stop_gradient(spread).items()}
        losses = {name: x for name, (_, x) in terms.items()}
        metrics = {name: rollout.mean(x) for name, x in (losses | entropies).items()}
        return sum(others, first), metrics

    def target_cost(
        self, targets: DiscoTargets, state: DiscoState, rollout: Rollout
    ) -> Float[Array, ""]:
        proposed = targets.proposed
        aims = proposed if self.config.predictions else proposed.pi
        means = sum(jnp.square(jnp.mean(rollout.mean(x))) for x in jax.tree.leaves(aims))
        target_pi = jax.lax.stop_gradient(state.target.logits(rollout)[:-1])
        distance = rollout.mean(kl_divergence(target_pi, proposed.pi))
        return self.config.target_mean_cost * means + self.config.target_kl_cost * distance

    def agent_cost(self, agent: Agent, rollout: Rollout) -> Float[Array, ""]:
        if not self.config.predictions:
            return jnp.zeros(())
        embedding = agent.unroll(rollout)
        y = agent.predict(embedding)["y"]
        z = agent.predict_action(agent.consider(embedding[:-1]), rollout.action)["z"]
        bonus = jnp.mean(entropy(y)) + rollout.mean(entropy(z))
        return -self.config.prediction_entropy_cost * bonus
