"""An actor-critic with something learned added to it: at the start, nothing (after LPG and OPEN).

The gradient of every logit gets a residual, and step size, entropy weight and λ a schedule over the
agent's life. Until discovery changes them, all of these are zero, and the rule is the actor-critic
to the bit.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.core.agent import Agent, Heads
from etude.core.moments import Moments
from etude.core.rule import Loss, Rule
from etude.core.types import Predictions, Rollout
from etude.ranges import Ranges
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig, ActorCriticTargets
from etude.rules.residual.network import (
    Multipliers,
    ResidualNetwork,
    Schedule,
    shifted_trace,
)
from etude.rules.residual.reading import (
    STATISTICS,
    Reading,
    explained_variance,
    life_inputs,
    observed,
    root_mean_square,
)
from etude.settings import check


@dataclasses.dataclass(frozen=True)
class ResidualConfig(ActorCriticConfig):
    """Settings of the actor-critic it starts from, and sizes of the networks."""

    bins: int = 0
    """Bins of a categorical value (an odd number), which suits rewards of any scale; 0: a plain
    scalar."""
    channels: int = 8
    """Channels of what is read of each action."""
    hidden: int = 32
    """Units that sum up what comes later in an episode."""
    mixed: int = 16
    """Units that both are mixed by, for each action."""
    life_units: int = 16
    """Units of the schedule."""
    residual: bool = True
    """Whether the gradients of logits get a residual."""
    schedule: bool = True
    """Whether step size, entropy weight and λ change over an agent's life."""
    residual_cost: float = 1e-3
    """Discovery: weight of the mean square of the residuals."""

    def __post_init__(self):
        super().__post_init__()
        check(self, count="channels hidden mixed life_units", cost="residual_cost")


class ResidualState(eqx.Module):
    """What lives with an agent: running moments, its age, and how its last update looked."""

    critic: Moments
    """What the actor-critic keeps."""
    advantage: Moments
    error: Moments
    reward: Moments
    updates: Int[Array, "*agents"]
    expected: Int[Array, "*agents"]
    """Updates of a whole life; 0 if nobody knows."""
    statistics: Float[Array, "*agents statistics"]


class ResidualTargets(eqx.Module):
    critic: ActorCriticTargets
    residual: Float[Array, "T B A"] | None
    """What is added to minus the gradient of each logit."""
    step_scale: Float[Array, ""]
    entropy_scale: Float[Array, ""]
    trace: Float[Array, ""]
    """λ."""


class Residual(Rule[ResidualState, ResidualTargets]):
    """An actor-critic plus a learned residual and schedule, which start as nothing at all."""

    ranges: ClassVar[Ranges] = ActorCritic.ranges
    network: ResidualNetwork | None
    life: Schedule | None
    weighs_entropy = True
    scheduled = ("life",)
    config: ResidualConfig = eqx.field(static=True)
    entropy_cost: Float[Array, ""] | None
    """Weight of the entropy bonus for one agent, if not that of the config."""

    def __init__(self, config: ResidualConfig = ResidualConfig(), *, key: PRNGKeyArray):
        network_key, life_key = jax.random.split(key)
        sizes = config.channels, config.hidden, config.mixed
        self.network = ResidualNetwork(*sizes, key=network_key) if config.residual else None
        self.life = Schedule(config.life_units, key=life_key) if config.schedule else None
        self.config = config
        self.entropy_cost = None

    def with_entropy_cost(self, cost: Float[Array, ""]) -> "Residual":
        return eqx.tree_at(lambda r: r.entropy_cost, self, cost, is_leaf=lambda x: x is None)

    @property
    def critic(self) -> ActorCritic:
        """What it starts from."""
        return ActorCritic(self.config, self.entropy_cost)

    def heads(self, num_actions: int) -> Heads:
        return self.critic.heads(num_actions)

    def init(self, agent: Agent) -> ResidualState:
        critic, advantage, error, reward = (Moments.zero() for _ in range(4))
        updates, expected = (jnp.zeros((), jnp.int32) for _ in range(2))
        statistics = jnp.zeros(len(STATISTICS))
        moments = critic, advantage, error, reward
        return ResidualState(*moments, updates, expected, statistics)

    def expect(self, state: ResidualState, updates: int | Int[Array, ""]) -> ResidualState:
        return eqx.tree_at(lambda s: s.expected, state, jnp.asarray(updates, jnp.int32))

    # --- Targets ---------------------------------------------------------------------------------

    def targets(
        self, agent: Agent, state: ResidualState, rollout: Rollout
    ) -> tuple[ResidualTargets, ResidualState]:
        """The statistics come from the update before, and so do the multipliers."""
        life = life_inputs(state.updates, state.expected, state.statistics, rollout.num_actions)
        multipliers = self._multipliers(life)
        trace = self.config.td_lambda
        shift = shifted_trace(trace, multipliers.trace)
        discount = rollout.discount(self.config.discount)
        weights = discount, trace, shift
        critic, kept = self.critic.estimate(agent, state.critic, rollout, *weights)

        prediction = jax.lax.stop_gradient(agent.predict(agent.unroll(rollout)))
        reading, state = self._read(prediction, critic, kept, state, rollout)
        residual = None
        if self.network is not None:
            inputs = reading.by_action(rollout), reading.by_state(rollout), life
            residual = self.network(*inputs, rollout.action, rollout.segment_ends)
            # In units of the advantages, as is what it is added to: it fades where they do.
            residual = residual * jax.lax.stop_gradient(state.advantage.deviation)
        scales = jnp.exp(multipliers.step), jnp.exp(multipliers.entropy)
        return ResidualTargets(critic, residual, *scales, trace + shift), state

    def _multipliers(self, life: Float[Array, " life"]) -> Multipliers:
        if self.life is None:
            return Multipliers(*jnp.zeros(len(Multipliers._fields), life.dtype))
        return self.life(life)

    def _read(
        self,
        prediction: Predictions,
        critic: ActorCriticTargets,
        kept: Moments,
        state: ResidualState,
        rollout: Rollout,
    ) -> tuple[Reading, ResidualState]:
        """What is to be seen of the rollout, and the state afterwards."""
        value = self.critic.values(prediction, state.critic)
        target = self.critic.in_rewards(critic.value, kept)
        error = target - value[:-1]
        td = rollout.reward + rollout.discount(self.config.discount) * value[1:] - value[:-1]
        errors = observed(state.error, error, rollout)
        rewards = observed(state.reward, rollout.reward, rollout)
        advantages = observed(state.advantage, critic.advantage, rollout)
        reading = Reading(
            logits=prediction["pi"][:-1],
            advantage=advantages.normalise(critic.advantage),
            error=errors.normalise(error, subtract_mean=False),
            td=errors.normalise(td, subtract_mean=False),
            reward=rollout.reward / root_mean_square(rewards),
        )
        looked = {
            "explained variance": explained_variance(error, target, rollout),
            "mean advantage": jnp.tanh(advantages.mean / advantages.deviation),
            "mean reward": jnp.tanh(rewards.mean / root_mean_square(rewards)),
        }
        looked |= reading.statistics(rollout)
        statistics = jnp.stack([looked[name] for name in STATISTICS])
        moments = kept, advantages, errors, rewards
        after = ResidualState(*moments, state.updates + 1, state.expected, statistics)
        return jax.lax.stop_gradient((reading, after))

    # --- Loss ------------------------------------------------------------------------------------

    def loss(self, agent: Agent, targets: ResidualTargets, rollout: Rollout) -> Loss:
        embedding = agent.unroll(rollout)
        # The policy twice: so the actor-critic's gradient is computed as it is alone, where a
        # compiler may fuse it with other sums, and the residual's is added to what comes out.
        aimed = self._aimed(agent.predict(embedding)["pi"][:-1], targets)
        prediction = agent.predict(embedding)
        weight = self.critic.entropy_weight(rollout.num_actions) * targets.entropy_scale
        loss, metrics = self.critic.loss_of(prediction, targets.critic, rollout, weight)
        metrics |= {
            "step_scale": targets.step_scale,
            "entropy_scale": targets.entropy_scale,
            "trace": targets.trace,
            "residual": jnp.sqrt(self._mean_square(targets, rollout)),
        }
        return loss - aimed, metrics

    def _aimed(
        self, logits: Float[Array, "T B A"], targets: ResidualTargets
    ) -> Float[Array, "T B"] | float:
        """What has the residual for its gradient."""
        return 0.0 if targets.residual is None else jnp.sum(targets.residual * logits, axis=-1)

    def step_scale(self, targets: ResidualTargets) -> Float[Array, ""]:
        return targets.step_scale

    def target_cost(
        self, targets: ResidualTargets, state: ResidualState, rollout: Rollout
    ) -> Float[Array, ""]:
        return self.config.residual_cost * self._mean_square(targets, rollout)

    def _mean_square(self, targets: ResidualTargets, rollout: Rollout) -> Float[Array, ""]:
        if targets.residual is None:
            return jnp.zeros(())
        return rollout.mean(jnp.mean(jnp.square(targets.residual), axis=-1))
