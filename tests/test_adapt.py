"""Learning to adapt as a run: it learns, goes on where it stopped, and says what is wrong."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.adaptation.by_gradient import relative
from etude.adaptation.config import AdaptConfig
from etude.adaptation.method import draw_tasks
from etude.adaptation.run import AdaptRun, judged, kept_policies
from etude.adaptation.saved import read_config
from etude.adaptation.watch import adapt_and_watch
from etude.api import reopen
from etude.cli.film import plan
from etude.core.distributions import log_prob
from etude.errors import UserError
from etude.runs.folder import METRICS
from etude.runs.lifecycle import execute, start

SHARED = dict(tasks="bandit:arms=2,pulls=6", batch=8, test_tasks=8, log_every=2, episodes=3)


def small(algo, **settings):
    own = dict(torso=(8,)) if algo in ("maml", "emaml") else dict(hidden=8)
    return AdaptConfig(**SHARED | own | dict(algo=algo, steps=8 * 3 * 6 * 8) | settings)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["emaml", "erl2"])
def test_a_run_that_stops_goes_on_to_the_same_bits(algo, tmp_path):
    work = AdaptRun.create(small(algo, seeds=2))
    whole = execute(work).summary
    folder = start(work, str(tmp_path / "run"))
    seen = []
    stopped = execute(work, folder, report=seen.append, should_stop=lambda: len(seen) >= 2)
    assert 0 < stopped.summary["updates"] < whole["updates"]
    again, folder = reopen(str(tmp_path / "run"))
    resumed = execute(again, folder).summary
    assert resumed["policy_sha256"] == whole["policy_sha256"]
    assert resumed["after"] == whole["after"]
    assert folder.summary()["updates"] == whole["updates"]
    before = {x.name: x.read_bytes() for x in folder.path.iterdir()}
    folder.log({"updates": 10**6, "steps": 10**6})  # as a run that goes on would
    assert judged(again, kept_policies(again, folder), 256)["after"] == whole["after"]
    assert len((folder.path / METRICS).read_bytes()) > len(before[METRICS])  # only read


@pytest.mark.slow
def test_emaml_learns_to_adapt_to_the_better_arm():
    """Not knowing anything earns 3 of 6, and knowing the arms 4. (RL²: in test_rl2.py.)"""
    settings = dict(batch=64, test_tasks=256, log_every=20, episodes=16, inner_rate=5.0)
    summary = execute(AdaptRun.create(small("emaml", **settings | dict(steps=300_000)))).summary
    assert summary["after"]["low"] > 3.5
    assert summary["after"]["mean"] > summary["before"]["mean"] + 0.4


def test_test_tasks_are_not_those_learned_from():
    work = AdaptRun.untraced(small("maml", train_tasks=5))
    train, test = (np.asarray(x.probabilities) for x in work._pools)
    assert train.shape == (5, 2) and test.shape == (8, 2)
    assert not set(train.ravel()) & set(test.ravel())
    tasks = work.method._tasks(work._pools[0], jax.random.key(0))
    assert set(np.asarray(tasks.probabilities).ravel()) <= set(train.ravel())


def test_trials_are_on_the_tasks_that_there_are_to_learn_from():
    work = AdaptRun.untraced(small("rl2", train_tasks=5))
    state = jax.tree.map(lambda x: x[0], work.init())
    for _ in range(3):
        state, _ = jax.jit(work.method.iterate)(state, work._pools)
    tasks = np.asarray(state.learning.world.actors.env_state.task.probabilities)
    assert set(tasks.ravel()) <= set(np.asarray(work._pools[0].probabilities).ravel())


def test_how_maml_differentiates_its_steps_is_as_one_says():
    """By the second derivatives of each surrogate, or not at all; the steps themselves are the
    same, and so is what was played."""
    gradients, played = [], []
    for settings in (
        dict(surrogate="plain"),
        dict(surrogate="lvc"),
        dict(surrogate="dice"),
        dict(first_order=True),
    ):
        method = AdaptRun.untraced(small("maml", inner_rate=1.0, **settings)).method
        policy = jax.jit(method.new_policy)(jax.random.key(0))
        tasks = method._tasks(None, jax.random.key(0))
        episodes, _ = jax.jit(method.collect)(policy, tasks, jax.random.key(1))
        gradient, _ = jax.jit(method.gradient)(policy, episodes)
        gradients.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(gradient.agent)]))
        played.append(episodes.outer.rollout.action)
        # Rates are not learned unless one says so.
        assert all((x == 0).all() for x in jax.tree.leaves(gradient.log_rates))
    for a, b in itertools.combinations(range(4), 2):
        np.testing.assert_array_equal(played[a], played[b])
        assert np.abs(gradients[a] - gradients[b]).max() > 1e-4


def test_outcomes_are_compared_with_others_of_the_same_task():
    outcome = jnp.array([1.0, 2.0, 3.0, 50.0, 50.0, 56.0])
    found = np.asarray(relative(outcome, 3))
    by_hand = np.array([-1.5, 0.0, 1.5, -3.0, -3.0, 6.0])
    np.testing.assert_allclose(found, by_hand / by_hand.std(), rtol=1e-5)
    alike = np.asarray(relative(outcome, 1))
    assert (alike[:3] < 0).all() and (alike[3:] > 0).all()  # by how easy the tasks are
    method = AdaptRun.untraced(small("emaml", batch=6, adaptations=3)).method
    for pool in (None, draw_tasks(method.env, jax.random.key(1), 5)):
        tasks = jax.tree.leaves(method._tasks(pool, jax.random.key(0)))
        assert all(len(np.unique(np.asarray(x), axis=0)) <= 2 and len(x) == 6 for x in tasks)
        assert any(len(np.unique(np.asarray(x), axis=0)) == 2 for x in tasks)
    with pytest.raises(UserError, match="does not make tasks with 4"):
        small("emaml", batch=6, adaptations=4).filled()


@pytest.mark.parametrize("tasks, inner_steps", [(SHARED["tasks"], 1), ("krazy_world", 2)])
def test_emaml_adds_that_exploration_is_paid_by_the_outcome_of_its_own_task(tasks, inner_steps):
    """The gradient it trains by, less MAML's, against that of the term written out: each task's
    credit times the mean log-likelihood of what it played before each step of adaptation."""
    settings = dict(tasks=tasks, inner_steps=inner_steps, batch=4)
    emaml = AdaptRun.untraced(small("emaml", exploration=0.7, **settings)).method
    maml = AdaptRun.untraced(small("maml", **settings)).method
    assert emaml.steps_per_update == 4 * 3 * emaml.env.horizon * (inner_steps + 1)
    policy = jax.jit(emaml.new_policy)(jax.random.key(2))
    tasks = emaml._tasks(None, jax.random.key(0))
    played, scores = jax.jit(emaml.collect)(policy, tasks, jax.random.key(1))
    assert played.inner.returns.shape == (4, inner_steps, 3)
    outcomes = np.asarray(scores.after)
    credit = (outcomes - outcomes.mean()) / (outcomes.std() + 1e-6)

    def term(policy):
        total = 0.0
        for i, step in itertools.product(range(4), range(inner_steps)):
            agent = policy.agent if step == 0 else agent  # noqa: F821
            lesson = jax.tree.map(lambda x, at=(i, step): x[at], played.inner)
            rollout = lesson.rollout
            likelihood = log_prob(agent.logits(rollout)[:-1], rollout.action)
            mean = jnp.sum(jnp.where(rollout.mask, likelihood, 0.0)) / rollout.mask.sum()
            total -= credit[i] * mean / 4
            agent, _ = maml.problem.inner(policy, agent, lesson)
        return total

    with_it, without = (jax.jit(x.gradient)(policy, played)[0].agent for x in (emaml, maml))
    of_term = jax.jit(jax.grad(term))(policy).agent
    assert np.abs(credit).max() > 0.5
    for a, b, c in zip(*map(jax.tree.leaves, (with_it, without, of_term)), strict=True):
        np.testing.assert_allclose(a - b, 0.7 * c, atol=5e-6)
    assert max(np.abs(c).max() for c in jax.tree.leaves(of_term)) > 1e-3


def test_steps_after_an_episodes_end_do_not_count():
    """Episodes of other lengths in Krazy World: what stands in the steps that were not played can
    be anything, and MAML's step, E-MAML's loss and their gradients are what they were."""
    method = AdaptRun.untraced(small("emaml", tasks="krazy_world", batch=4)).method
    policy = jax.tree.map(lambda x: x[0], AdaptRun.untraced(method.config).init().policy)
    tasks = method._tasks(None, jax.random.key(0))
    played, _ = jax.jit(method.collect)(policy, tasks, jax.random.key(1))
    assert 0.1 < float(jnp.mean(played.inner.rollout.mask)) < 0.9

    def spoiled(lesson):
        rollout, gone = lesson.rollout, ~lesson.rollout.mask
        ever = jnp.concatenate([gone, gone[..., -1:, :]], axis=-2)[..., None]
        anything = (
            jnp.where(ever, 7.0, rollout.observation),
            jnp.where(gone, 3, rollout.action),
            jnp.where(ever, -9.0, rollout.behaviour_logits).at[..., 0].add(1.0),
            jnp.where(gone, 5.0, lesson.targets.weight),
        )
        parts = lambda x: (  # noqa: E731
            x.rollout.observation,
            x.rollout.action,
            x.rollout.behaviour_logits,
            x.targets.weight,
        )
        lesson = eqx.tree_at(parts, lesson, anything)
        there = jnp.where(ever, lesson.rollout.behaviour_logits, rollout.behaviour_logits)
        return eqx.tree_at(lambda x: x.rollout.behaviour_logits, lesson, there)

    other = type(played)(*map(spoiled, played))
    found = (jax.tree.leaves(jax.jit(method.gradient)(policy, x)) for x in (played, other))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_maml_adapts_by_the_gradient_of_standardised_advantages_over_the_horizon():
    """Its step against one written out, on episodes that end early."""
    method = AdaptRun.untraced(small("maml", tasks="krazy_world", batch=2)).method
    policy = jax.tree.map(lambda x: x[0], AdaptRun.untraced(method.config).init().policy)
    tasks = method._tasks(None, jax.random.key(0))
    played, _ = jax.jit(method.collect)(policy, tasks, jax.random.key(1))
    lesson = jax.tree.map(lambda x: x[0, 0], played.inner)
    rollout, mask = lesson.rollout, np.asarray(lesson.rollout.mask)
    assert not mask.all()
    features = rollout.observation.reshape(*rollout.observation.shape[:2], -1)
    advantage = np.asarray(method.problem.rule._linear_advantage(features, rollout))
    seen = advantage[mask]
    scaled = np.where(mask, (advantage - seen.mean()) / np.sqrt(seen.var() + 1e-8), 0.0)

    def gain(agent):
        likelihood = log_prob(agent.logits(rollout)[:-1], rollout.action)
        return jnp.sum(likelihood * jnp.asarray(scaled)) / mask.size

    up = jax.jit(jax.grad(gain))(policy.agent)
    expected = jax.tree.map(lambda x, g: x + 5.0 * g, policy.agent, up)
    ours, _ = jax.jit(method.problem.inner)(policy, policy.agent, lesson)
    for a, b in zip(*map(jax.tree.leaves, (ours, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_explore_episodes_are_not_paid_for_in_training():
    """Other rewards in them change nothing that E-RL² learns but what it sees."""
    for algo, unpaid in (("erl2", True), ("rl2", False)):
        method = AdaptRun.untraced(small(algo, explore=2)).method
        state = jax.jit(method.init)(jax.random.key(0))
        _, batch, _ = jax.jit(method.training.play)(
            state.policy, state.learning.world, jax.random.key(1)
        )
        exploring = slice(0, 2 * method.env.horizon)  # all trials begin together
        assert bool((batch.reward[exploring] == 0).all()) == unpaid
        assert batch.observation.reward[exploring].any()


def test_a_policy_of_one_layer_is_not_linear():
    method = AdaptRun.untraced(small("maml")).method
    agent = method.new_policy(jax.random.key(0)).agent
    at = lambda x: agent.act(None, jnp.full(1, x))[1]  # noqa: E731
    assert np.abs(at(1.0) + at(-1.0) - 2 * at(0.0)).max() < 1e-6  # tanh is odd
    assert np.abs(at(2.0) - 2 * at(1.0)).max() > 1e-5


@pytest.mark.parametrize("algo", ["emaml", "rl2"])
def test_tasks_may_be_ones_own(algo):
    """All that one's own environment needs beside gymnax's interface is `sample_task` and
    `horizon`."""
    AdaptRun.create(small(algo, tasks="tests.probes:Doors"))


def test_learned_rates_have_gradients():
    work = AdaptRun.untraced(small("maml", learn_rates=True))
    method, state = work.method, jax.tree.map(lambda x: x[0], work.init())
    played, _ = jax.jit(method.collect)(
        state.policy, method._tasks(None, jax.random.key(0)), jax.random.key(1)
    )
    gradient, _ = jax.jit(method.gradient)(state.policy, played)
    assert any((x != 0).any() for x in jax.tree.leaves(gradient.log_rates))


@pytest.mark.parametrize(
    "settings, words",
    [
        (dict(tasks="catch"), "not a distribution of tasks"),
        (dict(tasks="krazy"), "did you mean 'krazy_world'"),
        (dict(tasks="trials/bandit"), "name bandit without trials/"),
        (dict(tasks="maze", expected=True), "tell the mean of each reward"),
        (dict(explore=3), "nothing would be scored"),
        (dict(batch=5), "equal --minibatches"),
        (dict(discount=1.5), "from 0 to 1"),
        (dict(surrogate="dice"), "rl2 has no setting surrogate"),
        (dict(algo="maml", cell="lstm"), "maml has no setting cell"),
        (dict(algo="maml", explore=0), "maml has no setting explore"),
        (dict(first_order=True), "rl2 has no setting first_order"),
        (dict(algo="maml", exploration=1.0), "is E-MAML"),
        (dict(algo="emaml", batch=1), "at least 2"),
    ],
)
def test_mistakes_get_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        AdaptRun.create(small(**dict(algo="rl2") | settings))


def test_a_setting_that_was_dropped_is_no_obstacle(tmp_path):
    work = AdaptRun.untraced(small("maml", epochs=1))
    folder = start(work, str(tmp_path / "run"))
    folder.write_config(folder.config() | {"outer": "pg"})
    assert read_config(folder) == work.config


@pytest.mark.parametrize("algo", ["emaml", "erl2"])
def test_a_policy_is_watched_while_it_adapts(algo):
    """Episodes of one task, each up to the state that it ended in."""
    work = AdaptRun.untraced(small(algo, tasks="krazy_world"))
    policy = jax.tree.map(lambda x: x[0], work.init().policy)
    story = adapt_and_watch(work, policy, jax.random.key(1), episodes=3)
    assert len(story.episodes) == len(story.returns) == 3
    for scenes, total in zip(story.episodes, story.returns, strict=True):
        states = [state for state, _ in scenes]
        assert [int(x.time) for x in states] == list(range(len(scenes)))
        assert states[-1].dead or states[-1].time == work.method.env.horizon
        assert int(states[-1].goals) == total
        assert int(states[0].cell) == int(story.task.params.start)


@pytest.mark.parametrize(
    "settings, asked, planned",
    [
        (dict(algo="erl2", explore=2), None, (3, "; the first 2 are to explore")),
        (dict(algo="erl2", explore=2), 1, (1, "; the first is to explore")),
        (dict(algo="rl2", explore=0), None, (3, "")),
        (dict(algo="maml"), None, (3, "; the first is before adapting")),
        (dict(algo="maml"), 5, (5, "; the first is before adapting")),
    ],
)
def test_a_whole_trial_is_shown_unless_one_says_otherwise(settings, asked, planned, tmp_path):
    folder = start(AdaptRun.untraced(small(**settings)), str(tmp_path / "run"))
    assert plan(folder, asked) == planned


def test_a_run_can_only_grow(tmp_path):
    work = AdaptRun.untraced(small("rl2"))
    start(work, str(tmp_path / "run"))
    with pytest.raises(UserError, match="can only add"):
        reopen(str(tmp_path / "run"), 10)
    longer, _ = reopen(str(tmp_path / "run"), 10**6)
    assert longer.config == dataclasses.replace(work.config, steps=10**6)
    start(AdaptRun.untraced(small("rl2", schedule="cosine")), str(tmp_path / "cosine"))
    with pytest.raises(UserError, match="cosine schedule ends where it ends"):
        reopen(str(tmp_path / "cosine"), 10**6)


def test_a_cosine_goes_to_0_over_the_run():
    method = AdaptRun.untraced(small("maml", schedule="cosine", learning_rate=0.1)).method
    steps = method.updates * method.config.epochs
    policy = method.new_policy(jax.random.key(0))
    state, ones = method.optimiser.init(policy), jax.tree.map(jnp.ones_like, policy)
    moves = []
    for _ in range(steps + 1):
        move, state = method.optimiser.update(ones, state, policy)
        moves.append(float(jnp.abs(jax.tree.leaves(move)[0]).max()))
    expected = 0.05 * (1.0 + np.cos(np.pi * np.arange(steps + 1) / steps))
    np.testing.assert_allclose(moves, expected, atol=1e-4)


def test_fresh_tasks_are_judged_with_intervals():
    work = AdaptRun.untraced(small("rl2", seeds=2))
    policies = work.init().policy
    found = judged(work, policies, 50)
    assert found["fresh_tasks"] == 50 and len(found["after"]["per_seed"]) == 2
    assert found["before"]["low"] <= found["before"]["mean"] <= found["before"]["high"]
    assert found["after"]["mean"] == pytest.approx(3.0, abs=0.6)
    assert judged(work, policies, 50, again=1) != found
