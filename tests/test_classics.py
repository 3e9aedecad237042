"""Classic strategies: what they choose by hand, and what they earn."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation import classics
from etude.adaptation.classics import best_policy, play_bandits, play_mdps
from etude.adaptation.gittins import gittins_indices
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


PUBLISHED = {
    0.9: [
        [0.7029, 0.5001, 0.3796],
        [0.8001, 0.6346, 0.5163],
        [0.8452, 0.7072, 0.6010],
        [0.8723, 0.7539, 0.6579],
    ],
    0.99: [[0.8699]],
}
"""Gittins 1989, tables for Bernoulli arms: by wins and losses, after one of each."""


def test_gittins_indices_are_those_published():
    for discount, rows in PUBLISHED.items():
        found = gittins_indices(discount, 5)[: len(rows), : len(rows[0])]
        np.testing.assert_allclose(found, rows, atol=6e-5)
    assert np.isnan(gittins_indices(0.9, 5)[3, 3])


def test_an_index_is_worth_more_than_the_mean_and_less_so_the_more_is_known():
    found = gittins_indices(0.9, 5)
    wins, losses = np.indices(found.shape)
    bonus = found - (wins + 1) / (wins + losses + 2)
    assert np.nanmin(bonus) > 0
    assert bonus[0, 0] > bonus[1, 1] > bonus[2, 2]


def test_the_largest_index_is_pulled():
    table = jnp.asarray(gittins_indices(0.9, 5))
    # Won and lost twice: 0.60; never pulled: 0.70; lost once: 0.50.
    wins, pulls = jnp.array([2.0, 0.0, 0.0]), jnp.array([4.0, 0.0, 1.0])
    assert classics.gittins(jax.random.key(0), wins, pulls, table) == 1
    assert classics.gittins(jax.random.key(0), wins.at[0].set(4.0), pulls, table) == 0


def test_hope_moves_what_is_likely_to_the_best_state():
    mean, value = jnp.array([[0.5, 0.3, 0.2]] * 3), jnp.array([3.0, 1.0, 2.0])
    found = classics.hopeful(mean, jnp.array([0.2, 0.8, 9.0]), value)
    np.testing.assert_allclose(
        found, [[0.6, 0.2, 0.2], [0.9, 0.0, 0.1], [1.0, 0.0, 0.0]], atol=1e-6
    )


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


STRATEGIES = classics.MDP_STRATEGIES | {
    "OPSRL": partial(classics.opsrl, samples=3),
    "UCRL2": partial(classics.ucrl2, width=0.03),
}


def test_strategies_learn_the_mdp_they_are_in():
    mdp, number = TabularMDP(states=4, actions=3, horizon=5), 100
    earned = {
        name: float(jnp.mean(jax.jit(lambda key, plan=plan: play_mdps(plan, mdp, 30, number, key))(
            jax.random.key(0)
        )))
        for name, plan in STRATEGIES.items()
    }  # fmt: skip
    assert earned["random"] == pytest.approx(150.0, abs=12.0)
    for name in ("PSRL", "OPSRL", "UCRL2"):
        share = (earned[name] - earned["random"]) / (earned["knowing the task"] - earned["random"])
        assert 0.6 < share < 1.0, name
