"""Rules that learn online: their gradients, what they reduce to, and training with them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import api, rules
from etude.api import reopen, train
from etude.core import optim
from etude.core.agent import Agent, NetworkConfig
from etude.core.learner import Learner
from etude.core.returns import lambda_returns
from etude.core.types import Rollout
from etude.envs import make
from etude.errors import UserError
from etude.meta.online import Life, OnlineProblem, reference_rule
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig, ActorCriticTargets
from etude.rules.frodo import Frodo, FrodoConfig
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute, start
from etude.runs.storage import named_leaves
from etude.training.config import TrainRequest
from etude.training.iteration import Training, make_optimiser
from etude.training.presets import resolve
from tests.conftest import random_like
from tests.test_learner import ACTIONS, OBSERVATION, OPTIMISER, dead_leaves, make_rollout, stack
from tests.test_metagradient import check_finite_differences, compiled

SMALL = dict(batch=8, rollout=4, torso=(16,), learning_rate=1e-2, log_every=5, inner_updates=2)


# --- Exact ---------------------------------------------------------------------------------------


def make_problem(optimiser=OPTIMISER, **settings) -> OnlineProblem:
    config = resolve(TrainRequest(env="catch", learn_rule=True, **settings), "frodo")
    training = Training.create(make("catch"), config)
    training = dataclasses.replace(training, optimiser=optimiser)
    return OnlineProblem(training, reference_rule("actor_critic:td_lambda=0.9"))


def make_life(rule, problem) -> Life:
    def agent():
        heads, network = rule.heads(ACTIONS), NetworkConfig(torso=(6, 5))
        return Agent(jnp.zeros(OBSERVATION), ACTIONS, heads, network, key=jax.random.key(0))

    learner = Learner.create(random_like(agent), rule, problem.training.optimiser)
    warm = jax.tree.map(lambda x: x + (5 if x.dtype == int else 0.1), learner.optimiser_state)
    learner = Learner(learner.agent, warm, learner.rule_state)
    moments = jax.tree.map(lambda x: x + 0.3, problem.reference.init(learner.agent))
    return Life(learner, moments)


CASES = {
    "frodo": (lambda: Frodo(FrodoConfig(hidden=3, consistency=0.1), key=jax.random.key(0)), {}),
    "frodo that observes": (
        lambda: Frodo(
            FrodoConfig(hidden=3, observe=True).fitted(jnp.zeros(OBSERVATION)),
            key=jax.random.key(0),
        ),
        {},
    ),
    "frodo that reads across episodes": (
        lambda: Frodo(FrodoConfig(hidden=3, across=True), key=jax.random.key(0)),
        {},
    ),
    "frodo that revises": (
        lambda: Frodo(FrodoConfig(hidden=3), key=jax.random.key(0)),
        dict(revise=0.7),
    ),
    "metagrad": (lambda: MetaGrad(MetaGradConfig()), {}),
    "metagrad per state": (
        lambda: MetaGrad(MetaGradConfig(per_state=True).fitted(jnp.zeros(OBSERVATION))),
        {},
    ),
}


def played_under(rule, seed=0, **size) -> Rollout:
    """With what the rule tells its agents, if anything."""
    rollout = make_rollout(seed, **size)
    if rule.context is None:
        return rollout
    told = rule.context(rollout.observation)
    told = jnp.broadcast_to(told, (*rollout.observation.shape[:2], told.shape[-1]))
    return dataclasses.replace(rollout, context=told)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("case", CASES)
def test_finite_differences(case, monkeypatch):
    create, settings = CASES[case]
    rule, problem = random_like(create), make_problem(**settings)
    life = make_life(rule, problem)
    updates = stack([played_under(rule, i) for i in range(3)])
    experience = updates, played_under(rule, 3, steps=7)
    plain = compiled("nested", True, problem)(rule, life, *experience)
    assert dead_leaves(plain.gradient) == []
    check_finite_differences((rule, life, *experience), monkeypatch, problem)


class Pinned(ActorCritic):
    """A reference whose targets are what they once were."""

    constant: ActorCriticTargets

    def __init__(self, constant: ActorCriticTargets, config: ActorCriticConfig):
        super().__init__(config)
        self.constant = constant

    def targets(self, agent, state, rollout):
        return self.constant, state


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "create, number",
    [
        (lambda: Frodo(FrodoConfig(hidden=3), key=jax.random.key(0)), 3),
        # The values in its targets are constants, too, and after one update depend on the rule.
        (lambda: MetaGrad(MetaGradConfig(normalise=False, tell=False)), 1),
    ],
)
def test_the_outer_targets_are_constants(create, number):
    """The gradient as training uses it, with nothing patched, is that of an outer loss whose
    targets stay what they are at the rule's present parameters. Plain gradient descent: no other
    constants play a part."""
    rule, problem = random_like(create), make_problem(optimiser=optim.make_optimiser("sgd", 0.1))
    life = make_life(rule, problem)
    updates, last = stack([make_rollout(i) for i in range(number)]), make_rollout(3, steps=7)
    found = compiled("nested", True, problem)(rule, life, updates, last)
    constant, _ = problem.reference.targets(found.state.learner.agent, life.reference_state, last)
    pinned = dataclasses.replace(problem, reference=Pinned(constant, problem.reference.config))
    function = compiled("nested", True, pinned)
    loss = lambda rule: function(rule, life, updates, last).metrics["meta_loss"]  # noqa: E731
    leaves, tree = jax.tree.flatten(rule)
    random, step = np.random.default_rng(0), 1e-5
    for i, (name, slope) in enumerate(named_leaves(found.gradient).items()):
        direction = random.normal(size=slope.shape)
        ends = [
            loss(
                jax.tree.unflatten(tree, [*leaves[:i], leaves[i] + x * direction, *leaves[i + 1 :]])
            )
            for x in (step, -step)
        ]
        expected = (ends[0] - ends[1]) / (2.0 * step)
        np.testing.assert_allclose(
            np.vdot(slope, direction), expected, rtol=1e-5, atol=1e-9, err_msg=name
        )


@pytest.mark.usefixtures("x64")
def test_with_fixed_coefficients_metagrad_is_the_actor_critic():
    config = dict(discount=0.8, td_lambda=0.6, normalise=False)
    rule, fixed = (
        MetaGrad(MetaGradConfig(**config)),
        ActorCritic(ActorCriticConfig(bins=0, **config)),
    )
    rollout = played_under(rule)
    agent = make_life(rule, make_problem()).learner.agent
    prediction = agent.predict(agent.unroll(rollout))
    on_policy = dataclasses.replace(rollout, behaviour_logits=prediction["pi"])
    ours, _ = rule.targets(agent, rule.init(agent), on_policy)
    theirs, _ = fixed.targets(agent, fixed.init(agent), on_policy)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    value = prediction["value"][..., 0]
    returns = lambda_returns(
        value[1:], rollout.reward, rollout.discount(0.8), jnp.full_like(rollout.reward, 0.6)
    )
    np.testing.assert_allclose(ours.value, returns, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_coefficients_may_differ_from_state_to_state():
    rule = MetaGrad(MetaGradConfig(per_state=True).fitted(jnp.zeros(2)))
    rule = eqx.tree_at(lambda r: r.coefficients.weight, rule, 3.0 * jnp.eye(2))
    seen = rule.coefficients(jnp.array([[0.0, 0.0], [1.0, 0.0]]))
    logit = np.log(0.99) - np.log(0.01)
    np.testing.assert_allclose(seen[0], [0.99, 0.95], rtol=1e-9)
    np.testing.assert_allclose(seen[1], [1 / (1 + np.exp(-logit - 3.0)), 0.95], rtol=1e-9)


@pytest.mark.usefixtures("x64")
def test_targets_of_frodo_use_what_comes_later_in_the_episode_only():
    rule = random_like(lambda: Frodo(FrodoConfig(hidden=3), key=jax.random.key(0)))
    rollout = make_rollout()  # environment 0 ends an episode with its second transition
    value = jnp.zeros((6, 3))
    before = rule.write(value, rollout)
    changed = dataclasses.replace(rollout, reward=rollout.reward.at[3].add(1.0))
    moved = np.asarray(rule.write(value, changed) != before)
    assert moved[3].all() and not moved[4].any()
    np.testing.assert_array_equal(moved[:3, 0], [False, False, True])
    assert moved[:3, 1:].all()


@pytest.mark.usefixtures("x64")
def test_consistency_by_hand():
    rule = Frodo(FrodoConfig(discount=0.5, consistency=2.0), key=jax.random.key(0))
    rollout = make_rollout()
    target = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))
    errors = []
    for t in range(4):
        for b in range(3):
            goes_on = 0.0 if rollout.terminal[t, b] else 1.0
            later = rollout.reward[t, b] + 0.5 * goes_on * target[t + 1, b]
            errors.append((later - target[t, b]) ** 2)
    targets = dataclasses.replace(
        rule.targets(make_life(rule, make_problem()).learner.agent, None, rollout)[0], value=target
    )
    np.testing.assert_allclose(
        rule.target_cost(targets, None, rollout), 2.0 * np.mean(errors), rtol=1e-9
    )


# --- Training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["frodo", "metagrad"])
def test_rules_learned_online_find_the_best_action(rule):
    result = train(
        "tests.probes:MatchSign",
        rule,
        steps=60_000,
        meta_learning_rate=3e-3,
        **SMALL | dict(batch=16, log_every=50),
    )
    assert result.summary["final_return"]["mean"] > 0.95


def test_a_rule_that_learns_goes_on_to_the_same_bits_and_can_be_used_frozen(tmp_path):
    settings = dict(steps=1200, seeds=2, **SMALL)
    run = api.setup("catch:rows=4,columns=3", "frodo", **settings)
    whole = execute(run, start(run, str(tmp_path / "whole")))
    folder = start(run, str(tmp_path / "half"))
    execute(run, folder, should_stop=lambda: len(folder.metrics()) == 1)
    assert folder.summary() is None
    half = execute(run, folder)
    for name in ("params_sha256", "rule_sha256"):
        assert half.summary[name] == whole.summary[name]
    learned = rules.load(str(tmp_path / "whole"))
    assert (
        rules.digest(learned) == whole.summary["rule_sha256"] != rules.digest(rules.load("frodo"))
    )
    frozen = train("catch:rows=4,columns=3", str(tmp_path / "whole"), steps=200)
    assert not frozen.config.learn_rule and frozen.config.torso == (16,)
    assert frozen.summary["rule_sha256"] == whole.summary["rule_sha256"]
    further = train("catch:rows=4,columns=3", str(tmp_path / "whole"), steps=200, learn_rule=True)
    assert further.summary["rule_sha256"] != whole.summary["rule_sha256"]


def test_a_schedule_counts_the_updates_of_the_agent():
    settings = dict(rule="frodo", learn_rule=True, steps=12_000, inner_updates=5, schedule="cosine")
    config = resolve(TrainRequest(batch=10, rollout=2, learning_rate=1.0, **settings), "frodo")
    assert (config.updates, config.agent_updates) == (100, 500)
    optimiser = make_optimiser(config)
    one = jnp.ones(())
    state = optimiser.init(one)
    step = jax.jit(optimiser.update)
    sizes = []
    for _ in range(500):
        update, state = step(one, state)
        sizes.append(-float(update))
    np.testing.assert_allclose([sizes[0], sizes[250]], [1.0, 0.5], rtol=1e-3)
    assert sizes[-1] < 1e-4


def test_every_seed_starts_from_its_own_rule():
    start = api.setup(rule="frodo", seeds=2, **SMALL).rule
    assert (start.out.w[0] != start.out.w[1]).any()
    alone = api.setup(rule="frodo", seeds=1, **SMALL).rule
    np.testing.assert_array_equal(alone.out.w[0], start.out.w[0])


@pytest.mark.parametrize("rule", ["frodo", Frodo(key=jax.random.key(5))], ids=["name", "object"])
def test_a_folder_starts_from_the_same_rules_before_there_is_a_checkpoint(rule, tmp_path):
    setup = api.setup(rule=rule, seeds=2, **SMALL | dict(learn_rule=True, steps=64))
    start(setup, str(tmp_path / "run"))
    again, _ = reopen(str(tmp_path / "run"))
    for a, b in zip(jax.tree.leaves(setup.rule), jax.tree.leaves(again.rule), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_agent_is_told_what_the_rule_has_learned():
    result = train("catch:rows=4,columns=3", "metagrad", steps=2000, **SMALL)
    told = result.rule.coefficients
    assert (told.bias != MetaGrad().coefficients.bias).all()
    assert rules.digest(result.rule) == result.summary["rule_sha256"]
    record = result.curve[-1]
    np.testing.assert_allclose(
        jax.nn.sigmoid(told.bias), [record["gamma"], record["lambda"]], atol=0.02
    )


@pytest.mark.parametrize(
    ("rule", "settings", "words"),
    [
        ("actor_critic", dict(learn_rule=True), "no parameters"),
        ("frodo", dict(replay_share=0.5), "no use for replay"),
        ("frodo", dict(outer="frodo"), "without parameters"),
        ("frodo", dict(outer="actor_critc"), "did you mean 'actor_critic'"),
        ("frodo:hidden=0", {}, "hidden must be at least 1"),
        ("metagrad:discount=1", {}, "above 0 and below 1"),
        ("frodo", dict(revise=-1.0), "revise must be 0 or more"),
    ],
)
def test_mistakes_get_a_sentence(rule, settings, words):
    with pytest.raises(UserError, match=words):
        train("catch", rule, steps=100, **settings)


def test_a_folder_with_settings_that_do_nothing_goes_on(tmp_path):
    path = str(tmp_path / "run")
    settings = dict(batch=4, rollout=4, torso=(8,), steps=64)
    train("catch:rows=4,columns=3", "actor_critic", out=path, **settings)
    folder = RunFolder.open(path)
    folder.write_config(folder.config() | dict(inner_updates=5, outer="actor_critic"))
    setup, _ = reopen(path)
    assert setup.config.online is None


@pytest.mark.parametrize(
    "rule, settings, words",
    [
        ("actor_critic", dict(revise=1.0), "--revise is for a rule that learns"),
        ("actor_critic", dict(outer="actor_critic"), "--outer is for a rule that learns"),
        ("frodo", dict(revise=1.0, inner_updates=1), "--inner-updates 2"),
        ("frodo", dict(outer="actor_critic:bins=601"), "bins=0"),
    ],
)
def test_settings_that_would_do_nothing_are_mistakes(rule, settings, words):
    with pytest.raises(UserError, match=words):
        api.setup(env="catch:rows=4,columns=3", rule=rule, **settings)
