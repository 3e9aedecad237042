"""Suites of others, by name: what is played is what their own environments do."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude import envs
from etude.cli.terminal import describe
from etude.core.observations import Symbols
from etude.envs.catalogue import SUITES
from etude.envs.registry import suite_module
from etude.errors import UserError

needs_envpool = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None,
    reason="EnvPool is not installed",  # importing it here would be before Qt
)


def actions_for(task, num_envs, steps, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(task.num_actions, size=(steps, num_envs)).astype(np.int32)


def played(spec, actions, seed=7):
    """First observations, and what each step led to, copied."""
    simulator = envs.make(spec).open(actions.shape[1], 0)
    copied = [[[x.copy() for x in simulator.reset(seed)]]]
    copied += [jax.tree.map(np.copy, tuple(simulator.step(x))) for x in actions]
    simulator.close()
    first, *steps = copied
    return first[0], [simulated(*x) for x in steps]


def simulated(*fields):
    from etude.envs.host.simulator import Stepped

    return Stepped(*fields)


# --- One environment after another, against the plain environment --------------------------------


def assert_as_plain(spec, plain, see, steps=300, seed=7):
    """Steps of two copies are those of two plain environments with the same seeds and actions.
    After a time limit there is a step that plays nothing. Returns how often that was."""
    task = envs.make(spec)
    actions = actions_for(task, 2, steps)
    first, found = played(spec, actions, seed)
    cuts = 0
    for i in range(2):
        env = plain()
        assert_seen(first, i, see(env.reset(seed=seed + i)[0]))
        begin = False
        for action, now in zip(actions[:, i].tolist(), found, strict=True):
            assert now.skipped[i] == begin
            reward, terminated, truncated = 0.0, False, False
            if begin:
                observation, begin = env.reset()[0], False
                cuts += 1
            else:
                observation, reward, terminated, truncated, _ = env.step(action)
                begin = truncated and not terminated
            assert now.reward[i] == np.float32(reward)
            assert (now.terminated[i], now.truncated[i]) == (terminated, begin)
            assert_seen(now.observation, i, see(env.reset()[0] if terminated else observation))
        env.close()
    return cuts


def assert_seen(leaves, i, expected):
    for leaf, x in zip(leaves, expected, strict=True):
        np.testing.assert_array_equal(leaf[i], x)


@pytest.mark.parametrize("limit", [None, 13])
def test_minigrid_is_minigrid(limit):
    minigrid_env = pytest.importorskip("minigrid") and importlib.import_module("gymnasium")
    options = {} if limit is None else {"max_steps": limit}
    spec = "minigrid/DoorKey-5x5" + ("" if limit is None else f":limit={limit}")
    cuts = assert_as_plain(
        spec,
        lambda: minigrid_env.make("MiniGrid-DoorKey-5x5-v0", **options),
        lambda x: [x["direction"], x["image"]],
    )
    assert cuts > 20 or limit is None


def test_missions_are_words_where_they_differ():
    pytest.importorskip("minigrid")
    from etude.envs.host.minigrid_env import WORDS, numbers_of

    assert set(envs.make("minigrid/DoorKey-5x5").observation) == {"direction", "image"}
    task = envs.make("minigrid/MiniGrid-Fetch-5x5-N2-v0")
    assert task.observation["mission"] == Symbols((48,), np.dtype("uint8"), len(WORDS) + 2)
    mission = numbers_of("get a red, strange key")
    assert [WORDS[x - 2] for x in mission[[0, 1, 2, 4]]] == ["get", "a", "red", "key"]
    assert mission[3] == 1 and not mission[5:].any()
    assert not numbers_of("go " * 100).shape[0] > 48


@pytest.mark.parametrize("name", ["BabyAI-GoToSeq", "Fetch-8x8-N3", "MultiRoom-N2-S4"])
def test_minigrids_symbols_are_as_many_as_it_says(name, capfd):
    pytest.importorskip("minigrid")
    task = envs.make(f"minigrid/{name}")
    numbers = [x.number for x in jax.tree.leaves(task.observation)]
    first, steps = played(f"minigrid/{name}", actions_for(task, 4, 50))
    for leaves in (first, *(x.observation for x in steps)):
        assert all(x.max() < number for x, number in zip(leaves, numbers, strict=True))
    assert not capfd.readouterr().out, "BabyAI prints nothing"


def test_crafter_is_crafter():
    pytest.importorskip("crafter")
    from etude.envs.host.crafter_env import RepeatableCrafter

    class Plain:
        def reset(self, seed=None):
            if seed is not None:
                self.env = RepeatableCrafter(length=30, seed=seed)
            return self.env.reset(), {}

        def step(self, action):
            observation, reward, done, info = self.env.step(action)
            dead = info["discount"] == 0
            return observation, reward, dead, done and not dead, info

        def close(self):
            pass

    assert assert_as_plain("crafter:length=30", Plain, lambda x: [x], steps=80) == 4


def test_crafters_score_is_a_geometric_mean_of_success_rates():
    pytest.importorskip("crafter")
    from etude.envs.host.crafter_env import CrafterEnv, score

    assert score({"a": 1.0, "b": 1.0})["score"] == pytest.approx(100.0)
    assert score({"a": 0.0, "b": 0.0})["score"] == 0.0
    assert score({"a": 0.5, "b": 0.0})["score"] == pytest.approx(51**0.5 - 1)
    env = CrafterEnv(length=40)
    env.reset(seed=0)
    for action in [5, 1, 2, 3, 4] * 8:
        _, _, dead, cut, info = env.step(action)
    assert cut and not dead and info["outcome"].keys() == info["achievements"].keys()
    assert len(info["outcome"]) == 22 and set(info["outcome"].values()) <= {0.0, 1.0}


def test_nethack_is_nethack():
    pytest.importorskip("nle")
    from nle.env.tasks import NetHackScore

    class Plain:
        """Seeded as ours is."""

        def reset(self, seed=None):
            if seed is not None:
                self.rng, self.env = np.random.default_rng(seed), NetHackScore()
            self.env.seed(*self.rng.integers(2**31, size=2).tolist(), reseed=False)
            return self.env.reset()

        def step(self, action):
            return self.env.step(action)

        def close(self):
            self.env.close()

    assert_as_plain(
        "nethack/Score", Plain, lambda x: [x["blstats"], x["glyphs"], x["message"]], 400
    )


def test_nethacks_limit_cuts_a_game_that_goes_on():
    pytest.importorskip("nle")
    task = envs.make("nethack/Score")
    actions = actions_for(task, 1, 42)
    _, free = played("nethack/Score", actions)
    first, cut = played("nethack/Score:limit=20", actions)
    for x, y in zip(free[:20], cut[:20], strict=True):
        assert_seen(x.observation, 0, [leaf[0] for leaf in y.observation])
    assert [t for t, x in enumerate(cut) if x.truncated[0]] == [19, 40]
    assert [t for t, x in enumerate(cut) if x.skipped[0]] == [20, 41]
    assert not any(x.terminated[0] for x in cut)
    again, _ = played("nethack/Score:limit=20", actions)
    assert_seen(first, 0, [leaf[0] for leaf in again])


# --- Atari --------------------------------------------------------------------------------------


def test_atari_is_the_emulator():
    """Rewards, ends and screens of the emulator with the same seed, four frames per action."""
    ale_py = pytest.importorskip("ale_py")
    task = envs.make("atari/Breakout")
    actions = actions_for(task, 2, 400)
    simulator = task.open(2, 0)
    simulator.reset(7)
    emulator = ale_py.ALEInterface()
    emulator.setInt("random_seed", 7)
    emulator.setFloat("repeat_action_probability", 0.25)
    emulator.loadROM(ale_py.roms.get_rom_path("breakout"))
    emulator.reset_game()
    np.testing.assert_array_equal(simulator.picture(), emulator.getScreenRGB())
    games = 0
    for action in actions:
        now = simulator.step(action)
        reward, screens = 0, []
        for _ in range(4):
            reward += emulator.act(action[0])
            screens.append(emulator.getScreenRGB())
            if emulator.game_over():
                break
        assert (now.score[0], now.reward[0]) == (reward, reward)
        assert now.over[0] == now.terminated[0] == emulator.game_over()
        if emulator.game_over():
            games += 1
            emulator.reset_game()
            screens = [emulator.getScreenRGB()] * 2
        np.testing.assert_array_equal(simulator.picture(), np.maximum(*screens[-2:]))
    simulator.close()
    assert games > 0


def test_clipped_rewards_and_lives_leave_score_and_game_as_they_are():
    pytest.importorskip("ale_py")
    actions = actions_for(envs.make("atari/MsPacman"), 3, 700)
    first, raw = played("atari/MsPacman", actions)
    begun, learned = played("atari/MsPacman:clip=true,life=true", actions)
    assert_seen(first, 0, [x[0] for x in begun])
    lives = 0
    for x, y in zip(raw, learned, strict=True):
        np.testing.assert_array_equal(x.score, y.score)
        np.testing.assert_array_equal(x.over, y.over)
        np.testing.assert_array_equal(x.observation[0], y.observation[0])
        np.testing.assert_array_equal(x.reward, x.score)
        np.testing.assert_array_equal(y.reward, np.sign(x.score))
        assert (y.terminated >= x.terminated).all() and not (y.skipped | y.truncated).any()
        lives += (y.terminated & ~y.over).sum()
    games = sum(x.over.sum() for x in raw)
    assert games > 0 and 2 * games <= lives <= 2 * games + 6, "three lives per game"
    assert max(x.score.max() for x in raw) >= 10


def test_a_limit_of_frames_cuts_a_game():
    pytest.importorskip("ale_py")
    actions = actions_for(envs.make("atari/Pong"), 2, 45)
    _, free = played("atari/Pong", actions)
    first, cut = played("atari/Pong:frames=80", actions)
    assert [t for t, x in enumerate(cut) if x.truncated.all()] == [19, 39]
    assert [t for t, x in enumerate(cut) if x.skipped.all()] == [20, 40]
    assert [t for t, x in enumerate(cut) if x.over.all()] == [19, 39]
    assert not any(x.terminated.any() for x in cut)
    for x, y in zip(free[:19], cut[:19], strict=True):
        np.testing.assert_array_equal(x.observation[0], y.observation[0])
    # The last one is of the same game, but ale-py pools other frames for it.
    assert 0 <= (free[19].observation[0] != cut[19].observation[0]).mean() < 0.01
    assert (cut[20].observation[0] != cut[19].observation[0]).any()
    assert first[0].shape == (2, 84, 84) and first[0].dtype == np.uint8


def test_the_57_games_are_there():
    ale_py = pytest.importorskip("ale_py")
    from etude.envs.suites.atari import names, rom_name

    assert len(set(names())) == 57
    assert {rom_name(x) for x in names()} <= set(ale_py.roms.get_all_rom_ids())
    assert envs.make("atari/Pong").num_actions == 18
    assert envs.make("atari/Pong:full_actions=false").num_actions == 6


# --- Procgen ------------------------------------------------------------------------------------


@needs_envpool
def test_procgen_repeats_itself_and_has_levels():
    actions = actions_for(envs.make("procgen/coinrun"), 4, 300)
    first, steps = played("procgen/coinrun", actions)
    again, same = played("procgen/coinrun", actions)
    np.testing.assert_array_equal(first[0], again[0])
    for x, y in zip(steps, same, strict=True):
        np.testing.assert_array_equal(x.observation[0], y.observation[0])
    assert sum(x.terminated.sum() for x in steps) > 0
    (one,), _ = played("procgen/coinrun:levels=1", actions[:1])
    assert (one[0] == one[1:]).all() and (first[0][0] != first[0][1]).any()


@needs_envpool
@pytest.mark.parametrize("mode", ["easy", "hard"])
def test_every_game_of_procgen_is_there(mode):
    for name in suite_module("procgen").names():
        (first,), (step,) = played(f"procgen/{name}:mode={mode}", np.zeros((1, 2), np.int32))
        assert first.shape == step.observation[0].shape == (2, 64, 64, 3) and first.any()


# --- EnvPool ------------------------------------------------------------------------------------


@needs_envpool
def test_envpool_skips_the_step_after_an_end_and_keeps_time_limits_apart():
    spec = "atari/Breakout:by=envpool,frames=400,life=true,clip=true"
    task = envs.make(spec)
    assert (task.num_actions, task.observation.shape) == (18, (84, 84))
    _, steps = played(spec, actions_for(task, 4, 400))
    ended = np.array([x.over for x in steps])
    cut, terminated = (
        np.array([getattr(x, k) for x in steps]) for k in ("truncated", "terminated")
    )
    skipped = np.array([x.skipped for x in steps])
    np.testing.assert_array_equal(skipped[1:], ended[:-1])
    assert cut.any() and not (cut & ~ended).any()
    assert (terminated & ~ended).any(), "lives are lost while the game goes on"
    assert not np.array([x.reward for x in steps])[skipped].any()
    lengths = np.diff(np.flatnonzero(ended[:, 0]))
    assert lengths.max() == 101, "of 100 steps, 400 frames, and one that is skipped"


@needs_envpool
def test_envpool_draws_the_screen_of_the_game_that_is_played():
    simulator = envs.make("atari/Pong:by=envpool").open(2, 0)
    simulator.reset(3)
    first = simulator.picture().copy()
    assert first.shape == (210, 160, 3)
    for _ in range(60):
        seen = simulator.step(np.full(2, 2, np.int32)).observation[0][0]
    grey = simulator.picture().mean(axis=-1)
    assert (grey != first.mean(axis=-1)).any()
    # The same picture, smaller: what is bright in one is bright in the other.
    rows, columns = np.arange(84) * 210 // 84 + 1, np.arange(84) * 160 // 84
    assert np.corrcoef(grey[np.ix_(rows, columns)].ravel(), seen.ravel())[0, 1] > 0.8
    simulator.close()


# --- Environments in JAX -------------------------------------------------------------------------


def jax_steps(task, number, num_envs=4):
    """Steps of copies with random actions: what `step` returns, stacked."""
    keys = jax.random.split(jax.random.key(0), num_envs)
    _, state = jax.vmap(task.env.reset, in_axes=(0, None))(keys, task.params)

    def one(state, key):
        action = jax.random.randint(key, (num_envs,), 0, task.num_actions)
        keys = jax.random.split(key, num_envs)
        step = jax.vmap(task.env.step, in_axes=(0, 0, 0, None))
        observation, state, reward, terminated, truncated, info = step(
            keys, state, action, task.params
        )
        return state, (observation, reward, terminated, truncated, info["final_observation"])

    return jax.jit(lambda s, k: jax.lax.scan(one, s, k))(
        state, jax.random.split(jax.random.key(1), number)
    )[1]


@pytest.mark.parametrize(
    "package, spec, limit",
    [
        ("xminigrid", "xminigrid/DoorKey-5x5:limit=11", 11),
        ("pgx", "pgx/minatar-freeway:limit=11", 11),
        ("pgx", "pgx/minatar-breakout", None),
        ("jumanji", "jumanji/Snake-v1", None),
    ],
)
def test_environments_in_jax_end_and_are_cut(package, spec, limit):
    pytest.importorskip(package)
    task = envs.make(spec)
    observation, reward, terminated, truncated, final = jax_steps(task, 60)
    assert not (terminated & truncated).any() and jnp.isfinite(reward).all()
    if limit is None:
        assert terminated.any() and not truncated.any()
    else:
        cut = jnp.flatnonzero(truncated[:, 0] | terminated[:, 0])
        assert truncated.any() and cut[0] <= limit - 1
    ended = (terminated | truncated).any(axis=1)
    same = [
        (x == y).reshape(60, -1).all(axis=1)
        for x, y in zip(jax.tree.leaves(observation), jax.tree.leaves(final), strict=True)
    ]
    assert all(x[~ended].all() for x in same) and not same[-1][ended].all()


@pytest.mark.slow
def test_craftax_is_cut_by_its_limit_only():
    pytest.importorskip("craftax")
    task = envs.make("craftax/Craftax-Classic-Symbolic:limit=9")
    assert task.env.starts_are_costly(task.params)
    _, _, terminated, truncated, _ = jax_steps(task, 20, num_envs=2)
    assert not terminated.any()
    assert jnp.flatnonzero(truncated[:, 0]).tolist() == [8, 17]


# --- Names, settings, lists ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec, package, sentence",
    [
        ("atari/pong", "ale_py", "did you mean 'Pong'"),
        ("atari/Pong:stick=1", "ale_py", "has no setting 'stick'"),
        ("atari/Pong:sticky=3", "ale_py", "sticky must be from 0 to 1"),
        ("atari/Pong:clip=3", "ale_py", "must be of type bool"),
        ("atari/Pong:frames=0", "ale_py", "frames must be at least 1"),
        ("minigrid/DorKey-5x5", "minigrid", "did you mean 'DoorKey-5x5'"),
        ("minigrid/DoorKey-5x5:view=4", "minigrid", "view must be odd"),
        ("nethack/Scor", "nle", "did you mean 'Score'"),
        ("nethack/Score:observe=glyph", "nle", "did you mean 'glyphs'"),
        ("nethack/Challenge:character=@", "nle", "chooses the character itself"),
        ("crafter/Hard", "crafter", "`etude envs crafter` lists them"),
        ("crafter:length=0", "crafter", "length must be at least 1"),
        ("procgen/coinrun:mode=medium", "envpool", "mode must be easy or hard"),
        ("atari/Pong:by=gym", "ale_py", "by must be ale or envpool"),
        ("pgx/go_9x9", "pgx", "game for several players"),
        ("xminigrid/XLand-MiniGrid-R1-9x9", "xminigrid", "needs a set of rules"),
        ("jumanji/TSP-v1:cities=3", "jumanji", "has no settings"),
    ],
)
def test_mistakes_get_a_sentence(spec, package, sentence):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with pytest.raises(UserError, match=sentence):
        envs.make(spec)


def test_what_is_missing_is_said_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for suite in SUITES:
        with pytest.raises(UserError, match=rf"pip install .*{suite}"):
            suite_module(suite)


def test_a_suite_is_listed_with_what_it_observes(monkeypatch):
    pytest.importorskip("minigrid")
    monkeypatch.setattr("etude.envs.suites.minigrid._ids", lambda: {"A": "MiniGrid-Empty-5x5-v0"})
    ((name, task),) = envs.listed("minigrid")
    assert (name, task.num_actions) == ("minigrid/A", 7)
    shown = describe(task.observation)
    assert shown == "direction: 1 symbols of 4, image: 7×7×3 symbols of 11"
