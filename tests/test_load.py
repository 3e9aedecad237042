"""Agents from run folders, in a loop of one's own."""

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import etude
from etude.errors import UserError
from etude.kinds import kind_in
from etude.runs.folder import FORMAT, IMPORT_FROM, KIND, RunFolder

SMALL = dict(torso=(8,), batch=4, rollout=4, steps=96, seeds=2)


def contents(path) -> dict[str, bytes]:
    return {x.name: x.read_bytes() for x in path.iterdir()}


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        ("actor_critic", dict(memory="none")),
        ("actor_critic", dict(memory="gru", memory_size=5)),
        ("metagrad", dict(memory="none", inner_updates=2)),
    ],
)
def test_an_agent_acts_in_ones_own_loop(rule, settings, tmp_path):
    path = tmp_path / "run"
    result = etude.train("gymnax/CartPole-v1", rule, out=str(path), **SMALL | settings)
    before = contents(path)
    assert "curve.png" in before or not any(r["episodes"] for r in result.curve)

    run = etude.load(str(path))
    assert len(run.agents) == 2 and run.summary is not None and run.config == result.config
    env, params = gymnax.make("CartPole-v1")
    key = jax.random.key(0)
    observation, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, 3), params)
    agent, first = run.agent, jnp.ones(3, bool)
    memory = agent.start(3)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    for t in range(30):
        memory, logits = agent.act(memory, observation, first)
        assert logits.shape == (3, 2) and np.isfinite(logits).all()
        action_key, *keys = jax.random.split(jax.random.fold_in(key, t), 4)
        action = jax.random.categorical(action_key, logits)
        observation, state, _, terminated, truncated, _ = step(
            jnp.stack(keys), state, action, params
        )
        first = (terminated | truncated).astype(bool)

    fresh = agent.act(agent.start(3), observation)[1]
    cleared = agent.act(memory, observation, jnp.ones(3, bool))[1]
    np.testing.assert_allclose(cleared, fresh, rtol=1e-5)
    trained = result.agent(0)
    told = None if run.rule.context is None else agent.rule.context(observation)
    expected = trained.act(trained.start(3), observation, context=told)[1]
    np.testing.assert_allclose(fresh, expected, rtol=1e-5)
    assert contents(path) == before


def test_a_folder_of_before_kinds_were_written_down_goes_on(tmp_path):
    """Its kind shows in its settings, and it goes on to the same bits."""
    env, path = "catch:rows=4,columns=3", tmp_path / "run"
    etude.train(env, "actor_critic", out=str(path), **SMALL)
    folder = RunFolder.open(str(path))
    config = folder.config()
    assert (config[KIND], config[FORMAT]) == ("train", 1)
    folder.write_config({k: v for k, v in config.items() if k not in (KIND, FORMAT)})
    assert kind_in(folder) == "train"
    longer = etude.resume(str(path), 192)
    whole = etude.train(env, "actor_critic", **SMALL | dict(steps=192))
    assert longer.summary["params_sha256"] == whole.summary["params_sha256"]


def test_learning_to_adapt_from_python_leaves_what_the_command_line_leaves(tmp_path):
    path = str(tmp_path / "run")
    settings = dict(hidden=8, batch=8, test_tasks=8, steps=2 * 8 * 5 * 4)
    result = etude.adapt("rl2", "bandit:arms=2,pulls=4", out=path, **settings)
    names = {"config.json", "metrics.jsonl", "checkpoint", "summary.json", "curve.png"}
    assert names <= {x.name for x in (tmp_path / "run").iterdir()}
    assert result.done == 2 and RunFolder.open(path).config()[KIND] == "adapt"
    assert etude.resume(path).summary == result.summary  # it is finished
    loaded = etude.load(path)
    expected = jax.tree.map(lambda x: x[0], result.policies)
    jax.tree.map(np.testing.assert_array_equal, loaded.agent.agent, expected)
    assert loaded.config == result.config and loaded.summary == RunFolder.open(path).summary()
    env, memory = etude.envs.make("trials/bandit:arms=2,pulls=4"), loaded.agent.start(3)
    seen = jax.tree.map(lambda x: np.zeros((3, *x.shape), x.dtype), env.observation)
    memory, logits = loaded.agent.act(memory, seen)
    assert logits.shape == (3, 2) and any(np.any(x != 0) for x in jax.tree.leaves(memory))


def test_what_maml_starts_from_can_be_loaded(tmp_path):
    path = str(tmp_path / "maml")
    settings = dict(steps=1, batch=2, episodes=2, torso=(4,), test_tasks=2)
    result = etude.adapt("maml", "bandit:arms=2,pulls=4", out=path, **settings)
    loaded = etude.load(path)
    expected = jax.tree.map(lambda x: x[0], result.policies.agent)
    jax.tree.map(np.testing.assert_array_equal, loaded.agent.agent, expected)
    assert etude.rules.kind_of(loaded.rule) == "policy_gradient"


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"env": "catch", "rule": "frodo", "learn_rule": True}, "online"),
        ({"env": "catch", "rule": "disco"}, "train"),
        ({"envs": "catch"}, "discover"),
        ({"algo": "rl2", "tasks": "maze"}, "adapt"),
        ({"kind": "adapt", "env": "catch"}, "adapt"),
        ({"kind": "paint"}, None),
        ({"kind": ["train"]}, None),
        ({}, None),
    ],
)
def test_the_kind_of_a_run_is_in_its_config(config, kind, tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    folder.write_config(config)
    assert kind_in(folder) == kind
    assert folder.settings().keys() == config.keys() - {KIND}


@pytest.mark.parametrize("function", [etude.train, etude.discover, etude.adapt])
def test_an_unknown_setting_gets_a_hint(function):
    with pytest.raises(UserError, match=f"etude.{function.__name__} has no .* mean 'seed'"):
        function(sed=3)


def test_what_cannot_be_loaded_gets_a_sentence(tmp_path):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    for config, words in (
        ({KIND: "paint"}, "is not a run of a kind"),
        ({KIND: "train", IMPORT_FROM: "."}, "holds no checkpoint yet"),
    ):
        folder.write_config(config)
        with pytest.raises(UserError, match=words):
            etude.load(str(folder.path))
    folder.write_config({KIND: "train", FORMAT: 2})
    with pytest.raises(UserError, match="has format 2"):
        etude.resume(str(folder.path))
    with pytest.raises(UserError, match="not a run folder"):
        etude.load(str(tmp_path))
