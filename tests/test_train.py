"""Training runs: same seed same bits, episode logs, presets, bad numbers, resume in process."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import api, envs, rules
from etude.api import reopen, train
from etude.core.types import Episodes
from etude.errors import UserError
from etude.kinds import open_folder
from etude.rules.actor_critic import ActorCritic, ActorCriticConfig
from etude.runs import loop
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute, start
from etude.settings import check_types
from etude.training.config import TrainRequest
from etude.training.iteration import LAST_EPISODES, EpisodeLog
from etude.training.presets import resolve
from etude.training.run import TrainRun
from tests.probes import LearnedDiscount

QUICK = dict(torso=(8,), batch=8, rollout=4, log_every=5, steps=640, learning_rate=1e-3)
ENV, RULE = "catch:rows=4,columns=3", "actor_critic"


def test_same_seed_same_bits_other_seed_other_bits():
    digests = [train(ENV, RULE, seed=seed, **QUICK).summary["params_sha256"] for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_seeds_side_by_side_are_independent_and_the_first_ones_do_not_depend_on_their_number():
    two = train(ENV, RULE, seeds=2, **QUICK)
    three = train(ENV, RULE, seeds=3, **QUICK)
    assert jax.tree.leaves(three.agents)[0].shape[0] == 3
    for a, b in zip(jax.tree.leaves(two.agents), jax.tree.leaves(three.agents), strict=True):
        np.testing.assert_allclose(a, b[:2], rtol=1e-5, atol=1e-6)
    weights = three.agents.torso.mlp.layers[0].w
    assert not np.allclose(weights[0], weights[1])


def test_steps_updates_and_records_add_up():
    result = train(ENV, RULE, **QUICK)
    assert result.summary["updates"] == 640 // (8 * 4) == 20
    assert result.summary["environment_steps"] == 640
    assert [r["updates"] for r in result.curve] == [5, 10, 15, 20]
    assert sum(r["episodes"] for r in result.curve) == 8 * (80 // 3)  # episodes of 3 steps


def test_replay_share_decides_the_number_of_environments():
    settings = dict(rollout=28, steps=57_792, replay_capacity=1024)
    config = resolve(TrainRequest(batch=64, replay_share=0.96875, **settings), "disco")
    assert (config.num_envs, config.steps_per_update, config.updates) == (2, 56, 1000)
    assert config.steps_after(1000) == 57_792  # 32 rollouts fill replay before the first update
    assert resolve(TrainRequest(batch=64, replay_share=0.0), "disco").num_envs == 64


def test_the_episode_log_keeps_the_last_hundred():
    rng = np.random.default_rng(0)
    log, seen = EpisodeLog.empty(), []
    for _ in range(12):
        ended = rng.random((7, 5)) < rng.choice([0.1, 0.9])
        returns = rng.normal(size=(7, 5)).astype(np.float32)
        seen += list(returns[ended])
        log = log.add(Episodes(jnp.asarray(ended), jnp.asarray(returns), jnp.asarray(ended, int)))
    assert int(log.count) == len(seen) > LAST_EPISODES
    np.testing.assert_array_equal(np.sort(log.returns), np.sort(seen[-LAST_EPISODES:]))


def test_one_rollout_may_end_more_than_a_hundred_episodes():
    returns = jnp.arange(300.0).reshape(30, 10)
    everywhere = jnp.ones((30, 10), bool)
    log = EpisodeLog.empty().add(Episodes(everywhere, returns, everywhere.astype(int)))
    np.testing.assert_array_equal(np.sort(log.returns), np.arange(200.0, 300.0))


def test_presets_fill_gaps_and_nothing_else():
    config = resolve(TrainRequest(env="catch:rows=5", rule="disco103", batch=32), "disco")
    assert (config.batch, config.learning_rate, config.replay_share) == (32, 1e-2, 0.96875)
    assert config.online is None and not config.learn_rule
    online = resolve(TrainRequest(rule="frodo", learn_rule=True), "frodo")
    assert online.online is not None and online.online.outer_rollout == online.rollout
    from_file = resolve(TrainRequest(env="catch", rule="some/rule.npz"), "disco")
    assert from_file.replay_share == 0.96875


def test_presets_carry_settings_of_the_rule():
    minatar = "gymnax/Breakout-MinAtar"
    filled = resolve(TrainRequest(env=minatar, rule="actor_critic:discount=0.9"), "actor_critic")
    assert rules.load(filled.rule).config == ActorCriticConfig(discount=0.9, entropy_cost=0.03)
    given = resolve(TrainRequest(env=minatar, rule="actor_critic:entropy_cost=0.1"), "actor_critic")
    assert rules.load(given.rule).config == ActorCriticConfig(entropy_cost=0.1)
    own_file = resolve(TrainRequest(env=minatar, rule="some/rule.npz"), "actor_critic")
    assert own_file.rule == "some/rule.npz"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(steps=-5), "steps must be at least 1, not -5"),
        (dict(seeds=0), "seeds must be"),
        (dict(learning_rate=-1e-3), "learning_rate must be a positive"),
        (dict(learning_rate=float("nan")), "learning_rate must be a positive"),
        (dict(replay_share=1.0), "replay_share must be"),
        (dict(torso=()), "torso must be"),
        (dict(batch=8, replay_share=0.5, replay_capacity=2), "replay-capacity must be"),
        (dict(batch=1, replay_share=0.9), "no room for a replay share"),
        (dict(seed=2**40), "seed must be"),
        (dict(env="gymnax/CartPole-v1", conv=(8,)), "convolutional torso needs"),
    ],
)
def test_settings_that_make_no_sense_get_a_sentence(settings, words):
    with pytest.raises(UserError, match=words):
        api.setup(**{"env": ENV, "rule": RULE, **settings})


def test_a_run_that_stopped_goes_on_to_the_same_bits(tmp_path):
    settings = QUICK | dict(env=ENV, rule=RULE, replay_share=0.5, replay_capacity=16, seeds=2)
    setup = api.setup(**settings)
    straight = execute(setup, start(setup, str(tmp_path / "a")))
    folder = start(setup, str(tmp_path / "b"))
    half = execute(setup, folder, should_stop=lambda: len(folder.metrics()) == 2)
    assert half.summary["updates"] == 10 and not (folder.path / "summary.json").exists()
    folder.log({"updates": 999, "steps": 0})  # written after the checkpoint, then lost
    result = execute(*reopen(str(tmp_path / "b")))
    assert result.summary["params_sha256"] == straight.summary["params_sha256"]
    strip = lambda rows: [{k: v for k, v in r.items() if k != "seconds"} for r in rows]  # noqa: E731
    assert strip(folder.metrics()) == strip(RunFolder.open(str(tmp_path / "a")).metrics())


def test_a_run_can_be_extended(tmp_path):
    folder = str(tmp_path / "run")
    train(ENV, RULE, out=folder, **QUICK)
    longer = execute(*reopen(folder, 1200))  # the last piece of work is a shorter one
    straight = train(ENV, RULE, **QUICK | dict(steps=1200))
    assert longer.summary["params_sha256"] == straight.summary["params_sha256"]
    assert RunFolder.open(folder).config()["steps"] == 1200
    with pytest.raises(UserError, match="can only add"):
        reopen(folder, 640)


def test_bad_numbers_stop_the_run_and_leave_the_last_good_checkpoint(tmp_path):
    setup = api.setup("tests.probes:PoisonedReward", RULE, **QUICK | dict(steps=64_000))
    folder = start(setup, str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"stopped at update \d+ .*the reward is nan") as error:
        execute(setup, folder, checkpoint_seconds=0.0)
    stopped_at = int(str(error.value).split("update ")[1].split()[0])
    restored = folder.restore(setup.shapes())
    assert restored is not None
    state, updates, _ = restored
    assert 0 < updates < stopped_at
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state.learner))


def test_bad_parameters_are_never_saved(tmp_path):
    """Loss and gradient of the last update may be fine while the parameters after it are not."""
    setup = api.setup(ENV, RULE, **QUICK)
    folder = start(setup, str(tmp_path / "run"))
    advance = TrainRun.advance

    def poisoned(self, state, done, number):
        state, metrics = advance(self, state, done, number)
        if done + number == self.updates:
            bias = state.learner.agent.head["pi"].b.at[0].set(jnp.inf)
            state = eqx.tree_at(lambda s: s.learner.agent.head["pi"].b, state, bias)
        return state, metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainRun, "advance", poisoned)
        for kept in (folder, None):
            with pytest.raises(UserError, match=r"After update 20, agent.head.pi.b holds"):
                execute(setup, kept)
    assert not folder.has_checkpoint and not (folder.path / "summary.json").exists()


def test_a_run_keeps_its_rule_with_its_settings(tmp_path, monkeypatch):
    rules.save(tmp_path / "mine.npz", rules.load("actor_critic:discount=0.5,bins=11"))
    monkeypatch.chdir(tmp_path)
    train(ENV, "mine.npz", out="run", **QUICK)
    (tmp_path / "mine.npz").unlink()
    monkeypatch.chdir("/")
    setup, _ = reopen(str(tmp_path / "run"), 1280)
    assert setup.rule.config == rules.load("actor_critic:discount=0.5,bins=11").config


def test_rules_and_tasks_of_ones_own_need_no_name():
    class Own(ActorCritic):
        """Not among the kinds."""

    by_name = train(ENV, "actor_critic:discount=0.9", **QUICK)
    settings = QUICK | dict(replay_share=0.0)
    config = ActorCriticConfig(discount=0.9, entropy_cost=0.1)  # as in the preset for Catch
    for rule in (ActorCritic(config), Own(config)):
        result = train(envs.make(ENV), rule, **settings)
        assert result.summary["params_sha256"] == by_name.summary["params_sha256"]


def test_two_processes_do_not_share_a_folder(tmp_path):
    setup = api.setup(ENV, RULE, **QUICK)
    folder = start(setup, str(tmp_path / "run"))
    with folder.locked(), pytest.raises(UserError, match="Another process"), folder.locked():
        pass


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("config.json", "[1]", "should be values by name"),
        ("config.json", "{", "is damaged"),
        ("config.json", '{"env": "catch", "steps": "many"}', "makes no sense"),
        ("config.json", '{"env": "catch", "colour": 1}', "this version lacks: colour"),
        ("config.json", '{"envs": "catch"}', "is not a training run"),
        ("metrics.jsonl", '{"steps": 1}\nnonsense\n{"steps": 2}\n', "is damaged"),
    ],
)
def test_a_mangled_file_gets_a_sentence(tmp_path, file, text, words):
    folder = RunFolder.create(str(tmp_path / "run"), "")
    folder.write_config({"steps": 1})
    (folder.path / file).write_text(text)
    with pytest.raises(UserError, match=words):
        folder.metrics()
        open_folder(str(folder.path), "train")
        reopen(str(folder.path))


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    train(ENV, RULE, out=str(tmp_path / "run"), **QUICK)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="there already"):
        train(ENV, RULE, out=str(tmp_path / "run"), **QUICK)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_damaged_checkpoint_gets_a_sentence(tmp_path):
    train(ENV, RULE, out=str(tmp_path / "run"), **QUICK)
    path = tmp_path / "run" / "checkpoint"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match="not a sound file"):
        execute(*reopen(str(tmp_path / "run"), 1280))


def test_the_record_of_a_run_says_which_rule_it_was(tmp_path):
    rule = ActorCritic(ActorCriticConfig(discount=0.5, entropy_cost=0.0))
    made = train(ENV, rule, out=str(tmp_path / "run"), **QUICK)
    assert made.config.rule == "actor_critic:discount=0.5,entropy_cost=0.0"
    again = train(ENV, made.config.rule, **QUICK)
    other = train(ENV, "actor_critic:discount=0.9", **QUICK)
    for name in ("rule_sha256", "params_sha256"):
        assert made.summary[name] == again.summary[name] != other.summary[name]


def test_a_rule_of_ones_own_is_trained_but_not_kept(tmp_path):
    rule = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))
    assert train(ENV, rule, **QUICK).config.rule == "LearnedDiscount"
    with pytest.raises(UserError, match="LearnedDiscount is not a kind of rule"):
        train(ENV, rule, out=str(tmp_path / "run"), **QUICK)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_resumed_keeps_its_summary(tmp_path):
    train(ENV, RULE, out=str(tmp_path / "run"), **QUICK)
    before = (tmp_path / "run" / "summary.json").read_text()
    execute(*reopen(str(tmp_path / "run")))
    assert (tmp_path / "run" / "summary.json").read_text() == before


def test_work_is_cut_into_pieces_by_time_with_the_same_bits(monkeypatch):
    settings = QUICK | dict(log_every=20)
    whole, reports = train(ENV, RULE, **settings), []
    monkeypatch.setattr(loop, "PIECE_SECONDS", 0.0)  # every piece is one update
    pieces = execute(api.setup(ENV, RULE, **settings), report=reports.append)
    assert [r["updates"] for r in reports] == list(range(1, 21))
    assert [r["updates"] for r in pieces.curve] == [20]
    assert pieces.summary["params_sha256"] == whole.summary["params_sha256"]
    for name, value in whole.curve[0].items():
        if name != "seconds":
            np.testing.assert_allclose(pieces.curve[0][name], value, rtol=1e-6)


@dataclasses.dataclass(frozen=True)
class Typed:
    """Not among the packages whose types the tests check by themselves."""

    count: int | None = None
    rate: float = 0.0
    widths: tuple[int, ...] = ()
    way: Literal["up", "down"] = "up"

    def __post_init__(self):
        check_types(self)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(count="5"), "count must be a whole number, not '5'"),
        (dict(count=1.5), "count must be a whole number"),
        (dict(count=True), "count must be a whole number"),
        (dict(widths=["8"]), "widths must be several whole numbers"),
        (dict(rate="fast"), "rate must be a number"),
        (dict(way="left"), "way must be one of up, down"),
    ],
)
def test_settings_have_types(settings, words):
    with pytest.raises(UserError, match=words):
        Typed(**settings)


def test_settings_that_are_as_good_become_what_is_declared():
    typed = Typed(count=np.int64(3), rate=1, widths=[8, 9])  # type: ignore[arg-type]
    assert typed == Typed(3, 1.0, (8, 9)) and type(typed.rate) is float and type(typed.count) is int


def test_lists_will_do_for_tuples():
    assert train(ENV, RULE, **QUICK | dict(torso=[8])).config.torso == (8,)
