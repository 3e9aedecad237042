"""What discovery asks of a rule: that agents, updated under it, do well on fresh experience."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from etude.core.distributions import entropy, log_prob
from etude.core.learner import Gradient, Learner, descend, loss_gradient
from etude.core.rule import Rule
from etude.core.types import Metrics, Rollout
from etude.meta.discovery.habits import Habits
from etude.meta.discovery.meta_value import MetaValue
from etude.meta.problem import Problem


class Lifetime(eqx.Module):
    """All that changes while an agent of the population learns."""

    learner: Learner
    value: MetaValue
    habits: Habits | None = None
    """What is the agent's own in how it learns; it does not change."""


class UpdateRecord(eqx.Module):
    """What the meta-loss wants to know of an agent update, and what is worth logging."""

    cost: Float[Array, "*N"]
    metrics: Metrics


@dataclasses.dataclass(frozen=True)
class Discovery(Problem[Rule, Lifetime, UpdateRecord]):
    """DiscoRL's problem (Oh et al., Nature 2025): an agent's return after N updates.

    The meta-loss is a policy gradient on the validation rollout with the normalised advantage of a
    separate meta-value function, an entropy bonus, and whatever costs the rule itself declares.
    """

    optimiser: optax.GradientTransformation
    """The agent's."""
    entropy_cost: float = 1e-2
    """Weight of the updated policy's entropy."""
    relative_entropy: bool = False
    """Whether that counts as a share of its maximum, log A."""

    def inner(
        self, params: Rule, state: Lifetime, experience: Rollout, gradient: Gradient = loss_gradient
    ) -> tuple[Lifetime, UpdateRecord]:
        """Agent and meta-value function learn from the same rollout and the same policy."""
        rollout, learner, habits = experience, state.learner, state.habits or Habits()
        rule = habits.rule(params)
        targets, rule_state = rule.targets(learner.agent, learner.rule_state, rollout)
        cost = rule.target_cost(targets, learner.rule_state, rollout)
        # The meta-value function does not depend on the rule: a reverse pass need not go there.
        value = jax.lax.stop_gradient(state.value)
        value, of_value = value.update(learner.agent.logits(rollout), rollout)
        agent, optimiser_state, metrics = descend(
            rule, habits.optimiser(self.optimiser), learner, targets, rollout, gradient
        )
        lifetime = Lifetime(Learner(agent, optimiser_state, rule_state), value, state.habits)
        of_agent = {f"agent_{name}": x for name, x in metrics.items()}
        return lifetime, UpdateRecord(cost, jax.lax.stop_gradient(of_agent | of_value))

    def outer(
        self, params: Rule, state: Lifetime, aux: UpdateRecord, experience: Rollout
    ) -> tuple[Float[Array, ""], tuple[Lifetime, Metrics]]:
        rule, validation = params, experience
        agent = state.learner.agent
        logits = agent.logits(validation)
        value, advantage, of_value = state.value.judge(logits, validation)
        pg_loss = -validation.mean(advantage * log_prob(logits[:-1], validation.action))
        bonus = validation.mean(entropy(logits[:-1]))
        cost, actions = self.entropy_cost, validation.num_actions
        if self.relative_entropy:
            cost /= math.log(max(actions, 2))
        reg_loss = rule.agent_cost(agent, validation) + jnp.mean(aux.cost) - cost * bonus
        metrics = {
            "meta_loss": pg_loss + reg_loss,
            "pg_loss": pg_loss,
            "reg_loss": reg_loss,
            "entropy": bonus,
            **of_value,
            **{name: jnp.mean(x) for name, x in aux.metrics.items()},
        }
        after = Lifetime(state.learner, value, state.habits)
        return pg_loss + reg_loss, jax.lax.stop_gradient((after, metrics))
