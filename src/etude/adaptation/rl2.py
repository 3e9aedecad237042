"""RL² and E-RL²: a recurrent policy whose state is what it has found out about a task.

Its state lasts over the episodes of a trial on one task (RL², arXiv 1611.02779), and the return of
the whole trial is maximised. In E-RL² (arXiv 1803.01118) the first episodes are there to explore:
the policy sees their rewards as ever, but is not paid for them.
"""

import dataclasses
from typing import Any, Literal, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from etude.adaptation.episodes import TaskDistribution, masked_mean, standardised
from etude.agent import HEAD_STD, Flatten
from etude.distributions import entropy, log_prob
from etude.nn import GRU, LSTM, Linear
from etude.returns import clipped_objective
from etude.trees import choose
from etude.types import Metrics

Cell = Literal["gru", "lstm"]
CELLS = {"gru": GRU, "lstm": LSTM}


class Seen(NamedTuple):
    """What the policy is told at each step."""

    observation: PyTree[Array]
    action: Int[Array, "*batch"]
    """The one before; −1 at the start of a trial."""
    reward: Float[Array, "*batch"]
    """The one before."""
    ended: Bool[Array, "*batch"]
    """Whether an episode has just ended, so that this is the first step of another."""


class RecurrentPolicy(eqx.Module):
    """From what is seen, step by step, to the logits of the actions and a value."""

    cell: GRU | LSTM
    pi: Linear
    value: Linear
    flatten: Flatten
    num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        observation: PyTree,
        num_actions: int,
        hidden: int = 256,
        cell: Cell = "gru",
        *,
        key: PRNGKeyArray,
    ):
        cell_key, pi_key, value_key = jax.random.split(key, 3)
        self.flatten = Flatten.like(observation)
        self.num_actions = num_actions
        self.cell = CELLS[cell](self.flatten.size + num_actions + 2, hidden, key=cell_key)
        self.pi = Linear(hidden, num_actions, key=pi_key, std=HEAD_STD)
        self.value = Linear(hidden, 1, key=value_key, std=HEAD_STD)

    def start(self, *batch: int) -> PyTree[Array]:
        return self.cell.zero_state(*batch)

    def step(
        self, state: PyTree[Array], seen: Seen
    ) -> tuple[PyTree[Array], Float[Array, "*batch A"], Float[Array, "*batch"]]:
        """The state after what was seen, the logits and the value."""
        parts = [
            self.flatten(seen.observation, self.pi.w.dtype),
            jax.nn.one_hot(seen.action, self.num_actions, dtype=self.pi.w.dtype),
            seen.reward[..., None].astype(self.pi.w.dtype),
            seen.ended[..., None].astype(self.pi.w.dtype),
        ]
        cell: Any = self.cell
        state = cell(jnp.concatenate(parts, axis=-1), state)
        output = cell.output(state)
        return state, self.pi(output), self.value(output)[..., 0]


class Trials(eqx.Module):
    """A trial on each of N tasks: T steps in all of its episodes. Where an episode ended early, the
    steps up to its horizon do not count, and nothing happens in them."""

    seen: Seen
    action: Int[Array, "T N"]
    reward: Float[Array, "T N"]
    log_prob: Float[Array, "T N"]
    value: Float[Array, "T N"]
    mask: Bool[Array, "T N"]
    episode: Int[Array, "T N"]
    """Which of the trial's episodes each step belongs to."""

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
    env: TaskDistribution, policy: RecurrentPolicy, tasks: PyTree, key: PRNGKeyArray, episodes: int
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
        observation, new_state, reward, ended, _ = move(keys, state, action, tasks)
        reward = jnp.where(alive, reward, 0.0)
        record = (seen, action, reward, log_prob(logits, action), value, alive)
        new_seen = Seen(observation, action, reward, jnp.zeros_like(ended))
        after = choose(alive, (new_memory, new_state, new_seen), (memory, state, seen))
        return (*after, alive & ~ended), record

    def episode(carry, key):
        memory, seen = carry
        reset_key, key = jax.random.split(key)
        observation, state = reset(jax.random.split(reset_key, number), tasks)
        seen = Seen(observation, seen.action, seen.reward, seen.action >= 0)
        start = (memory, state, seen, jnp.ones(number, bool))
        (memory, _, seen, _), record = jax.lax.scan(step, start, jax.random.split(key, env.horizon))
        return (memory, seen), record

    first_key, key = jax.random.split(key)
    observation, _ = reset(jax.random.split(first_key, number), tasks)
    nothing = Seen(observation, jnp.full(number, -1), jnp.zeros(number), jnp.zeros(number, bool))
    _, record = jax.lax.scan(
        episode, (policy.start(number), nothing), jax.random.split(key, episodes)
    )
    record = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), record)
    steps = jnp.repeat(jnp.arange(episodes), env.horizon)
    episode_of_each = jnp.broadcast_to(steps[:, None], (steps.shape[0], number))
    return jax.lax.stop_gradient(Trials(*record, episode=episode_of_each))


def replay(
    policy: RecurrentPolicy, trials: Trials
) -> tuple[Float[Array, "T N A"], Float[Array, "T N"]]:
    """The logits and values of a policy that sees what was seen in the trials."""

    def step(memory, x):
        seen, alive = x
        new_memory, logits, value = policy.step(memory, seen)
        return choose(alive, new_memory, memory), (logits, value)

    start = policy.start(trials.mask.shape[1])
    return jax.lax.scan(step, start, (trials.seen, trials.mask))[1]


def trial_advantages(
    trials: Trials, discount: float, td_lambda: float, explore: int = 0
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """Generalised advantage estimates over a whole trial, and the returns that values should learn.
    The rewards of the first `explore` episodes do not count. Steps that do not count take no time.
    """
    paid = jnp.where(trials.episode >= explore, trials.reward, 0.0)

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

    zeros = jnp.zeros_like(trials.value[0])
    xs = (paid, trials.value, trials.mask)
    advantage = jax.lax.scan(back, (zeros, zeros), xs, reverse=True)[1]
    return advantage, advantage + jnp.where(trials.mask, trials.value, 0.0)


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

    def loss(
        self,
        policy: RecurrentPolicy,
        trials: Trials,
        advantage: Float[Array, "T N"],
        returns: Float[Array, "T N"],
    ) -> tuple[Float[Array, ""], Metrics]:
        logits, value = replay(policy, trials)
        likelihood = log_prob(logits, trials.action)
        gain = trials.mean(clipped_objective(likelihood, trials.log_prob, advantage, self.clip))
        value_loss = 0.5 * trials.mean(jnp.square(value - returns))
        bonus = trials.mean(entropy(logits))
        total = -gain + self.value_cost * value_loss - self.entropy_cost * bonus
        return total, {"loss": total, "value_loss": value_loss, "entropy": bonus}

    def update(
        self,
        policy: RecurrentPolicy,
        optimiser: optax.GradientTransformation,
        optimiser_state: PyTree[Array],
        trials: Trials,
        key: PRNGKeyArray,
    ) -> tuple[RecurrentPolicy, PyTree[Array], Metrics]:
        """Several epochs over the trials; the metrics are means over all steps of the optimiser."""
        number = trials.mask.shape[1]
        if number % self.minibatches:
            raise ValueError(f"{number} tasks do not make {self.minibatches} equal minibatches.")
        advantage, returns = trial_advantages(trials, self.discount, self.td_lambda, self.explore)
        advantage = standardised(advantage, trials.mask)

        def step(carry, tasks):
            policy, state = carry
            gradient, metrics = jax.grad(self.loss, has_aux=True)(
                policy, trials.of_tasks(tasks), advantage[:, tasks], returns[:, tasks]
            )
            updates, state = optimiser.update(cast(Any, gradient), state, cast(Any, policy))
            return (cast(Any, optax.apply_updates(cast(Any, policy), updates)), state), metrics

        orders = jax.vmap(lambda k: jax.random.permutation(k, number))(
            jax.random.split(key, self.epochs)
        )
        parts = orders.reshape(self.epochs * self.minibatches, -1)
        (policy, optimiser_state), metrics = jax.lax.scan(step, (policy, optimiser_state), parts)
        return policy, optimiser_state, jax.tree.map(jnp.mean, metrics)
