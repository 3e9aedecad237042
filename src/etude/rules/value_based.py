"""Control by action values: Q(λ), Sarsa(λ), and what they share with any rule of that kind."""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from etude.core.agent import Agent, Heads
from etude.core.distributions import select_action
from etude.core.players import EpsilonGreedy
from etude.core.returns import lambda_returns, retrace
from etude.core.rule import Loss, Rule
from etude.core.types import Rollout
from etude.ranges import DISCOUNT, EXPLORATION, TRACE, Choice, Ranges
from etude.settings import check


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploration:
    """The settings of ε-greedy acting: ε goes from its start to its end in equal steps."""

    epsilon_start: float = 1.0
    """Probability of an action at random, at first."""
    epsilon_end: float = 0.05
    """Probability of an action at random, in the end."""
    epsilon_updates: int = 1000
    """Updates from the first to the last."""

    def __post_init__(self):
        check(self, share="epsilon_start epsilon_end", count="epsilon_updates")


class ValueState(eqx.Module):
    """What lives with an agent: how often it was updated, and θ⁻ if there is one."""

    updates: Int[Array, ""]
    target: Agent | None


class ValueBased(Rule[ValueState, Float[Array, "T B"]]):
    """Action values, one per action and state, that follow a target; actions are ε-greedy."""

    @property
    @abc.abstractmethod
    def exploration(self) -> Exploration: ...

    def heads(self, num_actions: int) -> Heads:
        return Heads(state={"q": num_actions}, acts_by="q")

    def init(self, agent: Agent) -> ValueState:
        return ValueState(jnp.zeros((), jnp.int32), None)

    def player(self, agent: Agent, state: ValueState | None = None) -> EpsilonGreedy:
        return EpsilonGreedy(agent, self.epsilon(state))

    def epsilon(self, state: ValueState | None) -> Float[Array, ""]:
        """After so many updates; that of the end once training is over."""
        settings = self.exploration
        if state is None:
            return jnp.asarray(settings.epsilon_end, float)
        share = jnp.minimum(1.0, state.updates / settings.epsilon_updates)
        return settings.epsilon_start + share * (settings.epsilon_end - settings.epsilon_start)

    def loss(self, agent: Agent, targets: Float[Array, "T B"], rollout: Rollout) -> Loss:
        taken = select_action(values_of(agent, rollout)[:-1], rollout.action)
        error = 0.5 * jnp.square(taken - targets)
        metrics = {"q_loss": error, "q": taken, "target": targets}
        return error, {name: rollout.mean(x) for name, x in metrics.items()}


def values_of(agent: Agent, rollout: Rollout) -> Float[Array, "T1 B A"]:
    return agent.predict(agent.unroll(rollout))["q"]


def behaviour_mean(values: Float[Array, "T1 B A"], rollout: Rollout) -> Float[Array, "T1 B"]:
    """The mean of the action values under the policy that acted."""
    return jnp.sum(jax.nn.softmax(rollout.behaviour_logits) * values, axis=-1)


# --- Q-learning -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class QLearningConfig(Exploration):
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.9
    """λ: 1 relies on the rewards seen, 0 on the values of the next state."""
    cut: bool = True
    """Whether returns look no further than the first action that was not greedy (Watkins); if not,
    they look through it (Peng), which is faster and biased."""
    double: bool = True
    """Whether the next action is chosen by the agent and judged by the target network, which keeps
    values from growing too large; without a target network, both are the agent's."""
    target_decay: float = 0.98
    """Fraction of the target network kept at each update; 0: there is no target network."""

    def __post_init__(self):
        super().__post_init__()
        check(self, share="discount td_lambda target_decay")


class QLearning(ValueBased):
    """Q(λ): values follow returns under the greedy policy (Watkins 1989; double: arXiv 1509.06461).
    It has no η."""

    ranges: ClassVar[Ranges] = {
        "discount": DISCOUNT,
        "td_lambda": TRACE,
        "target_decay": Choice((0.0, 0.9, 0.98, 0.995)),
        **EXPLORATION,
    }
    searched = ("replay_share",)
    config: QLearningConfig = eqx.field(static=True, default=QLearningConfig())

    @property
    def exploration(self) -> Exploration:
        return self.config

    def init(self, agent: Agent) -> ValueState:
        # A copy, for buffers that are shared with the agent's could not be donated.
        target = jax.tree.map(jnp.copy, agent) if self.config.target_decay else None
        return ValueState(jnp.zeros((), jnp.int32), target)

    def targets(
        self, agent: Agent, state: ValueState, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], ValueState]:
        own = jax.lax.stop_gradient(values_of(agent, rollout))
        judged = own
        if state.target is not None:
            judged = jax.lax.stop_gradient(values_of(state.target, rollout))
        chosen = jnp.argmax(own if self.config.double else judged, axis=-1)
        value = select_action(judged, chosen)
        goes_on = ~rollout.seam
        if self.config.cut:
            goes_on &= rollout.action == chosen[:-1]
        returns = retrace(
            select_action(judged[:-1], rollout.action),
            value,
            rollout.reward,
            rollout.discount(self.config.discount),
            self.config.td_lambda * goes_on,
        )
        return returns, ValueState(state.updates + 1, self._followed(agent, state.target))

    def _followed(self, agent: Agent, target: Agent | None) -> Agent | None:
        """The target network, a step closer to the agent."""
        decay = self.config.target_decay
        if target is None:
            return None
        return jax.tree.map(lambda t, a: decay * t + (1.0 - decay) * a, target, agent)


# --- Sarsa ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SarsaConfig(Exploration):
    discount: float = 0.99
    """γ of the returns."""
    td_lambda: float = 0.9
    """λ: 1 relies on the rewards seen, 0 on the value of the next action."""
    expected: bool = False
    """Whether the mean over the next actions takes the place of the value of the one taken."""

    def __post_init__(self):
        super().__post_init__()
        check(self, share="discount td_lambda")


class Sarsa(ValueBased):
    """Sarsa(λ): values follow the returns of the policy that acts (Rummery & Niranjan 1994). It has
    no η."""

    ranges: ClassVar[Ranges] = {"discount": DISCOUNT, "td_lambda": TRACE, **EXPLORATION}
    config: SarsaConfig = eqx.field(static=True, default=SarsaConfig())

    @property
    def exploration(self) -> Exploration:
        return self.config

    def targets(
        self, agent: Agent, state: ValueState, rollout: Rollout
    ) -> tuple[Float[Array, "T B"], ValueState]:
        values = jax.lax.stop_gradient(values_of(agent, rollout))
        after = behaviour_mean(values, rollout)[1:]
        # The action after the last transition is not known, nor is one taken after a time limit.
        if not self.config.expected:
            taken = select_action(values[1:-1], rollout.action[1:])
            known = ~rollout.seam[1:]
            after = after.at[:-1].set(jnp.where(known, taken, after[:-1]))
        trace = jnp.where(rollout.segment_ends, 0.0, self.config.td_lambda)
        discount = rollout.discount(self.config.discount)
        returns = lambda_returns(after, rollout.reward, discount, trace)
        return returns, ValueState(state.updates + 1, None)
