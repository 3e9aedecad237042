"""Classic strategies for tasks whose kind is known: what learned ones are compared with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from etude.envs.bandit import Bandit
from etude.envs.tabular_mdp import MDPTask, TabularMDP

# --- Bandits: which arm next, given how often each was pulled and paid ---------------------------

Choice = Callable[[PRNGKeyArray, Float[Array, " arms"], Float[Array, " arms"]], Int[Array, ""]]


def uniform(key: PRNGKeyArray, wins: Float[Array, " arms"], pulls: Float[Array, " arms"]):
    return jax.random.randint(key, (), 0, wins.shape[0])


def greedy(key: PRNGKeyArray, wins: Float[Array, " arms"], pulls: Float[Array, " arms"]):
    """The best mean so far, where each arm is thought to have won once and lost once before."""
    return _best(key, (wins + 1.0) / (pulls + 2.0))


def thompson(key: PRNGKeyArray, wins: Float[Array, " arms"], pulls: Float[Array, " arms"]):
    """As likely as it is to be the best arm, by a uniform prior (Thompson 1933)."""
    return jnp.argmax(jax.random.beta(key, wins + 1.0, pulls - wins + 1.0))


def ucb1(
    key: PRNGKeyArray,
    wins: Float[Array, " arms"],
    pulls: Float[Array, " arms"],
    width: float | Float[Array, ""] = 1.0,
):
    """The best that an arm may be, after Auer et al. 2002: `width` scales the bonus. The means are
    those of `greedy`, and each arm counts as pulled once more, so that none needs a first pull."""
    bonus = jnp.sqrt(2.0 * jnp.log(jnp.sum(pulls) + 1.0) / (pulls + 1.0))
    return _best(key, (wins + 1.0) / (pulls + 2.0) + width * bonus)


def gittins(
    key: PRNGKeyArray,
    wins: Float[Array, " arms"],
    pulls: Float[Array, " arms"],
    indices: Float[Array, "wins losses"],
):
    """The largest Gittins index, of a table of them by wins and losses."""
    return _best(key, indices[wins.astype(int), (pulls - wins).astype(int)])


def _best(key: PRNGKeyArray, x: Float[Array, " arms"]) -> Int[Array, ""]:
    """One of the largest, at random."""
    return jnp.argmax(jnp.where(x >= jnp.max(x), jax.random.uniform(key, x.shape), -1.0))


BANDIT_STRATEGIES: dict[str, Choice] = {
    "random": uniform,
    "greedy": greedy,
    "Thompson sampling": thompson,
    "UCB1": ucb1,
}


def play_bandits(
    choose: Choice, bandit: Bandit, number: int, key: PRNGKeyArray
) -> Float[Array, " number"]:
    """The sum of rewards on each of `number` fresh bandits."""

    def one(key):
        task_key, key = jax.random.split(key)
        task = bandit.sample_task(task_key)

        def pull(carry, key):
            wins, pulls = carry
            choice_key, reward_key = jax.random.split(key)
            arm = choose(choice_key, wins, pulls)
            paid = jax.random.bernoulli(reward_key, task.probabilities[arm]).astype(wins.dtype)
            return (wins.at[arm].add(paid), pulls.at[arm].add(1.0)), paid

        start = (jnp.zeros(bandit.arms), jnp.zeros(bandit.arms))
        return jnp.sum(jax.lax.scan(pull, start, jax.random.split(key, bandit.pulls))[1])

    return jax.vmap(one)(jax.random.split(key, number))


# --- MDPs ----------------------------------------------------------------------------------------


def action_values(task: MDPTask, horizon: int) -> Float[Array, "horizon states actions"]:
    """What each action is worth at each step of an episode, by backward induction."""

    def back(value, _):
        action_value = task.rewards + jnp.tensordot(task.transitions, value, axes=1)
        return jnp.max(action_value, axis=1), action_value

    start = jnp.zeros(task.rewards.shape[0], task.rewards.dtype)
    return jax.lax.scan(back, start, length=horizon)[1][::-1]


def best_policy(task: MDPTask, horizon: int) -> Int[Array, "horizon states"]:
    """The optimal action in each state at each step of an episode."""
    return jnp.argmax(action_values(task, horizon), axis=-1)


class Known(NamedTuple):
    """What was seen of an MDP."""

    visits: Float[Array, "states actions states"]
    sums: Float[Array, "states actions"]
    """Of the rewards."""

    def seen(self, place: Array, action: Array, after: Array, reward: Array) -> "Known":
        return Known(
            self.visits.at[place, action, after].add(1.0), self.sums.at[place, action].add(reward)
        )


Plan = Callable[[PRNGKeyArray, MDPTask, Known, int], Int[Array, "horizon states"]]
"""The actions of the next episode, given the task (for those who know it) and what was seen."""


def anything(key: PRNGKeyArray, task: MDPTask, known: Known, horizon: int):
    states, actions = task.rewards.shape
    return jax.random.randint(key, (horizon, states), 0, actions)


def psrl(key: PRNGKeyArray, task: MDPTask, known: Known, horizon: int, prior_mean: float = 0.0):
    """Draws an MDP from what is known and does what would be best in it (Strens 2000; Osband et al.
    2013). Rewards of mean 0 are expected at first, as in public code, though the true prior has 1:
    less is tried that way."""
    return best_policy(_drawn(key, known, prior_mean), horizon)


def opsrl(key: PRNGKeyArray, task: MDPTask, known: Known, horizon: int, samples: int = 10):
    """Optimistic PSRL: of several MDPs drawn from what is known, each action counts for as much as
    in the best of them."""

    def one(best: Array, key: PRNGKeyArray) -> tuple[Array, None]:
        return jnp.maximum(best, action_values(_drawn(key, known, 0.0), horizon)), None

    start = jnp.full((horizon, *known.sums.shape), -jnp.inf, known.sums.dtype)
    best, _ = jax.lax.scan(one, start, jax.random.split(key, samples))
    return jnp.argmax(best, axis=-1)


def ucrl2(
    key: PRNGKeyArray,
    task: MDPTask,
    known: Known,
    horizon: int,
    width: float | Float[Array, ""] = 1.0,
    risk: float = 0.05,
):
    """What is best in the best MDP that may still be the true one, with a probability of 1 − `risk`
    (Jaksch, Ortner, Auer 2010), in episodes; `width` scales the bounds, made for rewards between 0
    and 1."""
    states, actions = known.sums.shape
    visits = jnp.sum(known.visits, axis=-1)
    seen, time = jnp.maximum(visits, 1.0), jnp.sum(visits) + 1.0
    bound = jnp.sqrt(3.5 * jnp.log(2.0 * states * actions * time / risk) / seen)
    reward = known.sums / seen + width * bound
    reach = width * jnp.sqrt(14.0 * states * jnp.log(2.0 * actions * time / risk) / seen)
    mean = jnp.where(visits[..., None] > 0, known.visits / seen[..., None], 1.0 / states)

    def back(value: Array, _) -> tuple[Array, Array]:
        action_value = reward + hopeful(mean, reach, value) @ value
        return jnp.max(action_value, axis=1), jnp.argmax(action_value, axis=1)

    start = jnp.zeros(states, reward.dtype)
    return jax.lax.scan(back, start, length=horizon)[1][::-1]


def hopeful(
    mean: Float[Array, "*n states"], reach: Float[Array, "*n"], value: Float[Array, " states"]
) -> Float[Array, "*n states"]:
    """The distribution of the largest expected value whose distance from the mean, the sum of
    absolute differences, is `reach` at most: the best state is as likely as can be, at the cost of
    the worst ones."""
    order = jnp.argsort(value)  # from worst to best
    sorted_ = mean[..., order]
    best = jnp.minimum(1.0, sorted_[..., -1] + reach / 2)
    cost = best - sorted_[..., -1]
    others = sorted_[..., :-1]
    before = jnp.cumsum(others, axis=-1) - others
    left = others - jnp.clip(cost[..., None] - before, 0.0, others)
    hoped = jnp.concatenate([left, best[..., None]], axis=-1)
    return jnp.zeros_like(mean).at[..., order].set(hoped)


def knowing(key: PRNGKeyArray, task: MDPTask, known: Known, horizon: int):
    return best_policy(task, horizon)


MDP_STRATEGIES: dict[str, Plan] = {
    "random": anything,
    "PSRL": psrl,
    "OPSRL": opsrl,
    "UCRL2": ucrl2,
    "knowing the task": knowing,
}


def play_mdps(
    plan: Plan, mdp: TabularMDP, episodes: int, number: int, key: PRNGKeyArray
) -> Float[Array, " number"]:
    """The sum of rewards over all episodes on each of `number` fresh MDPs."""

    def one(key):
        task_key, key = jax.random.split(key)
        task = mdp.sample_task(task_key)

        def episode(known, key):
            plan_key, key = jax.random.split(key)
            return _follow(mdp, task, plan(plan_key, task, known, mdp.horizon), known, key)

        shape = (mdp.states, mdp.actions)
        start = Known(jnp.zeros((*shape, mdp.states)), jnp.zeros(shape))
        return jnp.sum(jax.lax.scan(episode, start, jax.random.split(key, episodes))[1])

    # Some at a time: what is known of all at once would not fit into a cache.
    return jax.lax.map(one, jax.random.split(key, number), batch_size=AT_ONCE)


AT_ONCE = 256


def _follow(
    mdp: TabularMDP, task: MDPTask, policy: Int[Array, "horizon states"], known: Known, key: Any
) -> tuple[Known, Float[Array, ""]]:
    """What is known after an episode, and its return."""

    def step(carry, x):
        (known, state), (actions, key) = carry, x
        action = actions[state.place]
        _, after, reward, _, _ = mdp.step_env(key, state, action, task)
        return (known.seen(state.place, action, after.place, reward), after), reward

    reset_key, key = jax.random.split(key)
    _, state = mdp.reset_env(reset_key, task)
    keys = jax.random.split(key, mdp.horizon)
    (known, _), rewards = jax.lax.scan(step, (known, state), (policy, keys))
    return known, jnp.sum(rewards)


def _drawn(key: PRNGKeyArray, known: Known, prior_mean: float) -> MDPTask:
    """From the posterior: flat Dirichlet transitions, and mean rewards from N(prior_mean, 1) seen
    through unit noise."""
    transition_key, reward_key = jax.random.split(key)
    transitions = jax.random.dirichlet(transition_key, known.visits + 1.0)
    precision = 1.0 + jnp.sum(known.visits, axis=-1)
    noise = jax.random.normal(reward_key, known.sums.shape)
    return MDPTask(transitions, (prior_mean + known.sums) / precision + noise / jnp.sqrt(precision))
