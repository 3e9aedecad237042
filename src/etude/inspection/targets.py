"""How far ahead a rule's targets look, and what it reads."""

from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from etude.core.agent import Agent
from etude.core.distributions import kl_divergence
from etude.core.learner import Learner
from etude.core.rule import Rule
from etude.core.types import Rollout
from etude.inspection.playing import centred
from etude.rules.disco.network import ProposedTargets
from etude.rules.disco.rule import Disco

HEADS = ("π̂", "ŷ", "ẑ")


@runtime_checkable
class Proposes(Protocol):
    """Targets that hold those of policy and predictions."""

    @property
    def proposed(self) -> ProposedTargets: ...


def proposed(rule: Rule, agent: Agent, state: PyTree, rollout: Rollout) -> ProposedTargets:
    targets, _ = rule.targets(agent, state, rollout)
    assert isinstance(targets, Proposes)
    return targets.proposed


def distances(a: ProposedTargets, b: ProposedTargets) -> Float[Array, "*batch 3"]:
    """KL(a‖b) of the softmaxes of π̂, ŷ and ẑ."""
    each = [
        kl_divergence(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    ]
    return jnp.stack(each, axis=-1)


@eqx.filter_jit
def horizon(
    rule: Rule, learner: Learner, rollout: Rollout, change: float = 1.0
) -> Float[Array, "T 3"]:
    """How much the targets of a step change, as a KL divergence, when the reward k steps later is
    larger by `change`, for each k. Only pairs of steps of one episode count; NaN if there are
    none."""
    arguments = learner.agent, learner.rule_state
    before = proposed(rule, *arguments, rollout)
    length = rollout.reward.shape[0]
    ends = (rollout.terminal | rollout.seam).astype(int)
    episode = jnp.cumsum(ends, axis=0) - ends

    def changed(step: Array) -> tuple[Array, Array]:
        """The sum of the changes, and how many there are, for each number of steps before."""
        reward = rollout.reward.at[step].add(change)
        other = eqx.tree_at(lambda r: r.reward, rollout, reward)
        by_step = distances(before, proposed(rule, *arguments, other))
        same = (episode == episode[step][None]) & ~(rollout.seam | rollout.seam[step][None])
        ahead = step - jnp.arange(length)
        counts = same & (ahead >= 0)[:, None]
        place = jnp.where(ahead >= 0, ahead, length)
        total = jnp.sum(jnp.where(counts[..., None], by_step, 0.0), axis=1)
        zeros = jnp.zeros((length + 1, total.shape[-1]))
        number = jnp.zeros(length + 1).at[place].add(jnp.sum(counts, axis=1))
        return zeros.at[place].add(total)[:-1], number[:-1]

    totals, numbers = jax.lax.map(changed, jnp.arange(length))
    return jnp.sum(totals, axis=0) / jnp.sum(numbers, axis=0)[:, None]


class Reads(NamedTuple):
    """The influence of each input on π̂, ŷ and ẑ."""

    gradient: Float[Array, "inputs 3"]
    """The root mean square change of the logits for one standard deviation of the input more,
    everywhere, to first order."""
    ablation: Float[Array, "inputs 3"]
    """KL(targets‖targets without the input), which is held at its mean."""


@eqx.filter_jit
def reads(rule: Disco, learner: Learner, rollout: Rollout) -> Reads:
    """Of the numbers that the backward LSTM reads of each transition."""
    state = learner.rule_state
    inputs, *_ = rule.inputs(learner.agent, state, rollout)
    features, by_action = rule.network.encoder(inputs, which=0)
    rnn = state.rnn if rule.config.meta_rnn else None
    mean = jnp.mean(features, axis=(0, 1))
    deviation = jnp.std(features, axis=(0, 1))

    def propose(features: Float[Array, "T B n"]) -> ProposedTargets:
        return rule.network.propose(features, by_action, rollout.segment_ends, rnn)[0]

    before = propose(features)

    def influence(i: Array) -> tuple[Array, Array]:
        direction = jnp.zeros_like(features).at[..., i].set(deviation[i])
        _, change = jax.jvp(propose, (features,), (direction,))
        sizes = [jnp.sqrt(jnp.mean(jnp.square(centred(x)))) for x in jax.tree.leaves(change)]
        without = propose(features.at[..., i].set(mean[i]))
        return jnp.stack(sizes), jnp.mean(distances(before, without), axis=(0, 1))

    return Reads(*jax.lax.map(influence, jnp.arange(features.shape[-1])))
