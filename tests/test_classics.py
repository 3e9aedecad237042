"""Classic strategies: what they choose by hand, and what they earn."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation import classics
from etude.adaptation.classics import best_policy, play_bandits, play_mdps
from etude.envs.bandit import Bandit
from etude.envs.tabular_mdp import MDPTask, TabularMDP


def test_what_is_chosen_by_hand():
    key = jax.random.key(0)
    wins, pulls = jnp.array([3.0, 0.0, 1.0]), jnp.array([4.0, 0.0, 1.0])
    assert classics.greedy(key, wins, pulls) in (0, 2)  # means of 4/6, 1/2 and 2/3
    assert classics.greedy(key, wins, pulls.at[2].set(2.0)) == 0
    assert classics.ucb1(key, wins, pulls) == 1  # never pulled, so it may be the best
    assert classics.ucb1(key, wins, pulls.at[2].set(2.0), width=0.01) == 0
    sure = jnp.array([0.0, 999.0, 0.0]), jnp.full(3, 999.0)
    assert classics.thompson(key, *sure) == 1
    choose = jax.vmap(lambda key: classics.greedy(key, jnp.zeros(3), jnp.zeros(3)))
    chosen = np.asarray(choose(jax.random.split(key, 600)))
    assert np.bincount(chosen).min() > 150  # ties are broken at random


def test_bandits_pay_what_is_known_of_them():
    bandit, number = Bandit(arms=5, pulls=10), 4000
    earned = {
        name: float(jnp.mean(play_bandits(choice, bandit, number, jax.random.key(1))))
        for name, choice in classics.BANDIT_STRATEGIES.items()
    }
    error = 3 * 1.9 / number**0.5
    assert earned["random"] == pytest.approx(5.0, abs=error)
    assert earned["greedy"] == pytest.approx(6.6, abs=error + 0.05)  # Duan et al., table 1
    assert earned["Thompson sampling"] == pytest.approx(5.7, abs=error + 0.1)
    narrow = play_bandits(partial(classics.ucb1, width=0.1), bandit, number, jax.random.key(1))
    assert float(jnp.mean(narrow)) == pytest.approx(6.7, abs=error + 0.05)


def test_backward_induction_finds_the_best_of_all_policies():
    random = np.random.default_rng(0)
    task = MDPTask(
        jnp.asarray(random.dirichlet(np.ones(2), (2, 2))), jnp.asarray(random.normal(size=(2, 2)))
    )
    transitions, rewards = np.asarray(task.transitions), np.asarray(task.rewards)

    def worth(policy):
        value = np.zeros(2)
        for actions in policy[::-1]:
            value = np.array(
                [rewards[s, a] + transitions[s, a] @ value for s, a in enumerate(actions)]
            )
        return value[0]

    policies = np.array(list(itertools.product(range(2), repeat=6))).reshape(-1, 3, 2)
    best = max(map(worth, policies))
    assert worth(np.asarray(best_policy(task, 3))) == pytest.approx(best, abs=1e-6)


def test_psrl_learns_the_mdp_it_is_in():
    mdp, number = TabularMDP(states=4, actions=3, horizon=5), 100
    earned = {
        name: float(jnp.mean(jax.jit(lambda key, plan=plan: play_mdps(plan, mdp, 30, number, key))(
            jax.random.key(0)
        )))
        for name, plan in classics.MDP_STRATEGIES.items()
    }  # fmt: skip
    assert earned["random"] == pytest.approx(150.0, abs=12.0)
    share = (earned["PSRL"] - earned["random"]) / (earned["knowing the task"] - earned["random"])
    assert 0.6 < share < 1.0
