"""Classic strategies for tasks whose kind is known: what learned ones are compared with."""

from collections.abc import Callable
from functools import partial

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
    """The best that an arm may be (Auer et al. 2002), times `width`: 1 as published. The means are
    those of `greedy`, so that no arm needs a first pull."""
    rounds = jnp.maximum(jnp.sum(pulls) + 1.0, 1.0)
    bonus = jnp.sqrt(2.0 * jnp.log(rounds) / (pulls + 1.0))
    return _best(key, (wins + 1.0) / (pulls + 2.0) + width * bonus)


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


def best_policy(task: MDPTask, horizon: int) -> Int[Array, "horizon states"]:
    """The optimal action in each state at each step of an episode, by backward induction."""

    def back(value, _):
        action_value = task.rewards + jnp.tensordot(task.transitions, value, axes=1)
        return jnp.max(action_value, axis=1), jnp.argmax(action_value, axis=1)

    start = jnp.zeros(task.rewards.shape[0], task.rewards.dtype)
    return jax.lax.scan(back, start, length=horizon)[1][::-1]


def play_mdps(
    mdp: TabularMDP, episodes: int, number: int, key: PRNGKeyArray, strategy: str = "PSRL"
) -> Float[Array, " number"]:
    """The sum of rewards over all episodes on each of `number` fresh MDPs.

    PSRL (Strens 2000; Osband et al. 2013) draws an MDP from what is known before each episode and
    does what would be best in it; "optimal" knows the task; "random" does anything.
    """
    return jax.vmap(partial(_play_mdp, mdp, episodes, strategy))(jax.random.split(key, number))


def _play_mdp(mdp: TabularMDP, episodes: int, strategy: str, key: PRNGKeyArray):
    task_key, key = jax.random.split(key)
    task = mdp.sample_task(task_key)
    shape = (mdp.states, mdp.actions)

    def episode(carry, key):
        policy_key, key = jax.random.split(key)
        policy = {
            "PSRL": lambda: best_policy(_drawn(policy_key, *carry), mdp.horizon),
            "optimal": lambda: best_policy(task, mdp.horizon),
            "random": lambda: jax.random.randint(
                policy_key, (mdp.horizon, mdp.states), 0, mdp.actions
            ),
        }[strategy]()

        def step(carry, x):
            (visits, sums), state = carry
            actions, key = x
            action = actions[state.place]
            _, after, reward, _, _ = mdp.step_env(key, state, action, task)
            place = (state.place, action)
            return (
                (visits.at[(*place, after.place)].add(1.0), sums.at[place].add(reward)),
                after,
            ), reward

        _, state = mdp.reset_env(key, task)
        keys = jax.random.split(key, mdp.horizon)
        (carry, _), rewards = jax.lax.scan(step, (carry, state), (policy, keys))
        return carry, jnp.sum(rewards)

    start = (jnp.zeros((*shape, mdp.states)), jnp.zeros(shape))
    return jnp.sum(jax.lax.scan(episode, start, jax.random.split(key, episodes))[1])


def _drawn(
    key: PRNGKeyArray,
    visits: Float[Array, "states actions states"],
    sums: Float[Array, "states actions"],
) -> MDPTask:
    """From the posterior, with the distribution of tasks as prior: flat Dirichlet transitions, and
    mean rewards from N(1, 1) seen through unit noise."""
    transition_key, reward_key = jax.random.split(key)
    transitions = jax.random.dirichlet(transition_key, visits + 1.0)
    precision = 1.0 + jnp.sum(visits, axis=-1)
    noise = jax.random.normal(reward_key, sums.shape)
    return MDPTask(transitions, (1.0 + sums) / precision + noise / jnp.sqrt(precision))
