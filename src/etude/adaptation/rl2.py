"""RL² and E-RL²: a recurrent policy whose state is what it has found out about a task.

Its state lasts over the episodes of a trial on one task (RL², arXiv 1611.02779), and the return of
the whole trial is maximised. In E-RL² (arXiv 1803.01118) the first episodes are there to explore:
the policy sees their rewards as ever, but is not paid for them.
"""

import dataclasses
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.adaptation.episodes import TaskDistribution, masked_mean, standardised
from etude.adaptation.recurrent import RecurrentPolicy, Seen
from etude.core.distributions import entropy, log_prob
from etude.core.returns import clipped_objective
from etude.core.trees import choose
from etude.core.types import EXPECTED_REWARD, Metrics


@runtime_checkable
class Player(Protocol):
    """What acts in trials: a recurrent policy, or one seen through something."""

    def start(self, *batch: int) -> PyTree[Array]: ...

    def step(self, state: PyTree[Array], seen: Seen) -> tuple[PyTree[Array], Array, Array]: ...


class Trials(eqx.Module):
    """A trial on each of N tasks: T steps in all of its episodes. Where an episode ended early, the
    steps up to its horizon do not count, and nothing happens in them."""

    seen: Seen
    action: Int[Array, "T N"]
    reward: Float[Array, "T N"]
    expected: Float[Array, "T N"]
    """The mean of the reward, where the environment knows it, or else the reward: what is learned
    from, since luck teaches nothing."""
    log_prob: Float[Array, "T N"]
    value: Float[Array, "T N"]
    """In the units of a `Baseline`."""
    mask: Bool[Array, "T N"]
    episode: Int[Array, "T N"]
    """Which of the trial's episodes each step belongs to."""
    last_state: PyTree[Array]
    """Of the environment at the end of each episode (episodes × tasks), for measuring."""

    def mean(self, x: Float[Array, "T N"]) -> Float[Array, ""]:
        """Over all steps that count."""
        return masked_mean(x, self.mask)

    def of_tasks(self, tasks: Int[Array, " n"]) -> "Trials":
        """Only those on some of the tasks."""
        return jax.tree.map(lambda x: x[:, tasks], self)

    def returns(self, first: int = 0) -> Float[Array, " N"]:
        """The mean return of a trial's episodes from number `first` on."""
        paid = jnp.where(self.episode >= first, self.reward, 0.0)
        return jnp.sum(paid, axis=0) / (self.episode[-1] + 1 - first)


def play_trials(
    env: TaskDistribution, policy: Player, tasks: PyTree, key: PRNGKeyArray, episodes: int
) -> Trials:
    """A trial of so many episodes on each of the tasks (along their first axis)."""
    number = jax.tree.leaves(tasks)[0].shape[0]
    reset, move = jax.vmap(env.reset_env), jax.vmap(env.step_env)

    def step(carry, key):
        memory, state, seen, alive = carry
        action_key, env_key = jax.random.split(key)
        new_memory, logits, value = policy.step(memory, seen)
        action = jax.random.categorical(action_key, logits)
        keys = jax.random.split(env_key, number)
        observation, new_state, reward, ended, info = move(keys, state, action, tasks)
        expected = jnp.where(alive, info.get(EXPECTED_REWARD, reward), 0.0)
        reward = jnp.where(alive, reward, 0.0)
        record = (seen, action, reward, expected, log_prob(logits, action), value, alive)
        new_seen = Seen(observation, seen.observation, action, reward, jnp.zeros_like(ended))
        after = choose(alive, (new_memory, new_state, new_seen), (memory, state, seen))
        return (*after, alive & ~ended), record

    def episode(carry, key):
        memory, seen = carry
        reset_key, key = jax.random.split(key)
        observation, state = reset(jax.random.split(reset_key, number), tasks)
        seen = Seen(observation, seen.before, seen.action, seen.reward, seen.action >= 0)
        start = (memory, state, seen, jnp.ones(number, bool))
        (memory, state, seen, _), record = jax.lax.scan(
            step, start, jax.random.split(key, env.horizon)
        )
        return (memory, seen), (record, state)

    first_key, key = jax.random.split(key)
    observation, _ = reset(jax.random.split(first_key, number), tasks)
    nothing = Seen(
        observation,
        jax.tree.map(jnp.zeros_like, observation),
        jnp.full(number, -1),
        jnp.zeros(number),
        jnp.zeros(number, bool),
    )
    _, (record, last_state) = jax.lax.scan(
        episode, (policy.start(number), nothing), jax.random.split(key, episodes)
    )
    record = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), record)
    steps = jnp.repeat(jnp.arange(episodes), env.horizon)
    episode_of_each = jnp.broadcast_to(steps[:, None], (steps.shape[0], number))
    return jax.lax.stop_gradient(Trials(*record, episode=episode_of_each, last_state=last_state))


def replay(
    policy: RecurrentPolicy, trials: Trials
) -> tuple[Float[Array, "T N A"], Float[Array, "T N"]]:
    """The logits and values of a policy that sees what was seen in the trials."""

    cell: Any = policy.cell

    def step(memory, x):
        gates, alive = x
        memory = choose(alive, cell.advance(gates, memory), memory)
        return memory, cell.output(memory)

    # Only what depends on the step before is done step by step.
    inputs = policy.inputs(trials.seen)
    start = policy.start(trials.mask.shape[1])
    outputs = jax.lax.scan(step, start, (cell.input_gates(inputs), trials.mask))[1]
    return policy.heads(outputs, inputs)


class Baseline(eqx.Module):
    """What returns are like at each step of a trial: their mean, which takes most of their size out
    of what values have to learn, and how far they are from it."""

    mean: Float[Array, " T"]
    deviation: Float[Array, ""]
    updates: Int[Array, ""]

    @staticmethod
    def zero(steps: int) -> "Baseline":
        return Baseline(jnp.zeros(steps), jnp.ones(()), jnp.zeros((), jnp.int32))

    def values(self, value: Float[Array, "T N"]) -> Float[Array, "T N"]:
        """Values in the units of returns."""
        return self.mean[:, None] + self.deviation * value

    def update(self, returns: Float[Array, "T N"], mask: Bool[Array, "T N"]) -> "Baseline":
        """A plain average at first, an exponential one later."""
        rate = jnp.maximum(0.05, 1.0 / (self.updates + 1.0))
        number = jnp.sum(mask, axis=1)
        found = jnp.sum(jnp.where(mask, returns, 0.0), axis=1) / jnp.maximum(number, 1)
        mean = self.mean + jnp.where(number > 0, rate * (found - self.mean), 0.0)
        far = jnp.sqrt(masked_mean(jnp.square(returns - mean[:, None]), mask) + 1e-8)
        return Baseline(mean, self.deviation + rate * (far - self.deviation), self.updates + 1)


def trial_advantages(
    trials: Trials,
    values: Float[Array, "T N"],
    discount: float,
    td_lambda: float,
    explore: int = 0,
) -> Float[Array, "T N"]:
    """Generalised advantage estimates over a whole trial. The rewards of the first `explore`
    episodes do not count. Steps that do not count take no time."""
    paid = jnp.where(trials.episode >= explore, trials.expected, 0.0)

    def back(carry, x):
        advantage_after, value_after = carry
        reward, value, alive = x
        delta = reward + discount * value_after - value
        advantage = delta + discount * td_lambda * advantage_after
        carry = (
            jnp.where(alive, advantage, advantage_after),
            jnp.where(alive, value, value_after),
        )
        return carry, jnp.where(alive, advantage, 0.0)

    zeros = jnp.zeros_like(values[0])
    return jax.lax.scan(back, (zeros, zeros), (paid, values, trials.mask), reverse=True)[1]


class Learning(eqx.Module):
    """What learning from trials keeps beside the policy."""

    optimiser: PyTree[Array]
    baseline: Baseline


@dataclasses.dataclass(frozen=True)
class PPO:
    """How a recurrent policy learns from trials (arXiv 1707.06347)."""

    discount: float = 0.99
    td_lambda: float = 0.95
    explore: int = 0
    """Episodes at the start of each trial whose rewards do not count."""
    clip: float = 0.2
    epochs: int = 4
    minibatches: int = 4
    """Parts that each epoch divides the tasks into, at random."""
    entropy_cost: float = 0.01
    value_cost: float = 0.5

    def start(
        self, policy: RecurrentPolicy, optimiser: optax.GradientTransformation, steps: int
    ) -> Learning:
        """For trials of so many steps."""
        return Learning(optimiser.init(cast(Any, policy)), Baseline.zero(steps))

    def update(
        self,
        policy: RecurrentPolicy,
        optimiser: optax.GradientTransformation,
        learning: Learning,
        trials: Trials,
        key: PRNGKeyArray,
    ) -> tuple[RecurrentPolicy, Learning, Metrics]:
        """Several epochs over the trials; the metrics are means over all steps of the optimiser."""
        number = trials.mask.shape[1]
        if number % self.minibatches:
            raise ValueError(f"{number} tasks do not make {self.minibatches} equal minibatches.")
        baseline, advantage, targets = self._judge(learning.baseline, trials)

        def step(carry, tasks):
            policy, state = carry
            gradient, metrics = jax.grad(self._loss, has_aux=True)(
                policy, trials.of_tasks(tasks), advantage[:, tasks], targets[:, tasks]
            )
            updates, state = optimiser.update(cast(Any, gradient), state, cast(Any, policy))
            return (cast(Any, optax.apply_updates(cast(Any, policy), updates)), state), metrics

        orders = jax.vmap(lambda k: jax.random.permutation(k, number))(
            jax.random.split(key, self.epochs)
        )
        parts = orders.reshape(self.epochs * self.minibatches, -1)
        (policy, state), metrics = jax.lax.scan(step, (policy, learning.optimiser), parts)
        return policy, Learning(state, baseline), jax.tree.map(jnp.mean, metrics)

    def _judge(
        self, baseline: Baseline, trials: Trials
    ) -> tuple[Baseline, Float[Array, "T N"], Float[Array, "T N"]]:
        """The baseline after these trials, standardised advantages, and what values should be."""
        advantages = partial(trial_advantages, discount=self.discount, explore=self.explore)
        nothing = jnp.zeros_like(trials.value)
        baseline = baseline.update(advantages(trials, nothing, td_lambda=1.0), trials.mask)
        values = baseline.values(trials.value)
        advantage = advantages(trials, values, td_lambda=self.td_lambda)
        targets = trials.value + advantage / baseline.deviation
        return baseline, standardised(advantage, trials.mask), targets

    def _loss(
        self,
        policy: RecurrentPolicy,
        trials: Trials,
        advantage: Float[Array, "T N"],
        targets: Float[Array, "T N"],
    ) -> tuple[Float[Array, ""], Metrics]:
        logits, value = replay(policy, trials)
        likelihood = log_prob(logits, trials.action)
        gain = trials.mean(clipped_objective(likelihood, trials.log_prob, advantage, self.clip))
        value_loss = 0.5 * trials.mean(jnp.square(value - targets))
        bonus = trials.mean(entropy(logits))
        total = -gain + self.value_cost * value_loss - self.entropy_cost * bonus
        return total, {"loss": total, "value_loss": value_loss, "entropy": bonus}
