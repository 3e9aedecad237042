"""Experience from simulators outside JAX: the same as from inside, whatever the simulator does."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import etude
from etude import api, envs, errors
from etude.acting import collector
from etude.acting.host_source import HostSource
from etude.acting.jax_source import JaxSource
from etude.core.agent import Agent, Heads
from etude.core.config import NetworkConfig
from etude.core.players import Policy
from etude.core.returns import lambda_returns, retrace, vtrace
from etude.envs.host import making
from etude.envs.host.simulator import Stepped, faults
from etude.envs.host.vector_envs import VectorEnvs
from etude.envs.tasks import HostTask
from etude.errors import UserError
from etude.runs import lifecycle
from tests import host_probes

GAMMA = host_probes.GAMMA
OBSERVATION = jax.ShapeDtypeStruct((2,), np.float32)


def some_agent(memory="none"):
    config = NetworkConfig(torso=(8,), memory=memory, memory_size=4)
    return Agent(OBSERVATION, 2, Heads({"pi": 2}), config, key=jax.random.key(3))


def collected(task, player, keys, length, num_envs, **settings):
    """Rollouts, one for each key, without the axis of players."""
    source = HostSource(task, 1, num_envs, lambda leaves: (player, None), **settings)
    found = [source.collect([], key[None], length) for key in keys]
    source.close()
    return [jax.tree.map(lambda x: x[:, 0], x) for x in found]


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_rollouts_as_in_jax_to_the_bit(memory, workers):
    agent, keys = some_agent(memory), jax.random.split(jax.random.key(1), 3)
    inside = JaxSource(envs.make_jax("tests.probes:CorridorInJax"), 3)
    actors = inside.reset(agent, keys[0])
    task = envs.make("tests.host_probes:Corridor")
    outside = collected(task, agent, keys, 11, 3, workers=workers)
    collect = jax.jit(lambda actors, key: inside.collect(agent, actors, key, 11))
    seen_seams = seen_ends = False
    for key, (rollout, episodes) in zip(keys, outside, strict=True):
        actors, expected, expected_episodes = collect(actors, key)
        exact = ("observation", "action", "reward", "terminal", "seam", "mask")
        for name in exact:
            np.testing.assert_array_equal(getattr(rollout, name), getattr(expected, name), name)
        np.testing.assert_array_equal(episodes.ended, expected_episodes.ended)
        where = expected_episodes.ended
        np.testing.assert_array_equal(episodes.returns[where], expected_episodes.returns[where])
        np.testing.assert_array_equal(episodes.lengths[where], expected_episodes.lengths[where])
        for a, b in zip(jax.tree.leaves(rollout), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)  # logits and memory: two programs
        values = jnp.sum(rollout.observation, axis=-1)
        for x in (rollout, expected):
            rho = x.importance_ratio(x.behaviour_logits[:-1] + 0.1)
            target = vtrace(values, x.reward, x.discount(GAMMA), rho, 0.9).target
            q = retrace(values[:-1], values, x.reward, x.discount(GAMMA), 0.9 * rho)
            if x is rollout:
                ours = target, q
        np.testing.assert_allclose(ours, (target, q), rtol=1e-5)
        seen_seams |= bool(rollout.seam.any())
        seen_ends |= bool(rollout.terminal.any())
    assert seen_seams and seen_ends


def gym_simulator(num_envs, workers):
    return envs.make("tests.host_probes:Cycle").open(num_envs, workers)


def vector_simulator(mode):
    def open(num_envs, workers):
        makers = [host_probes.Cycle] * num_envs
        return VectorEnvs(SyncVectorEnv(makers, autoreset_mode=mode))

    return open


@pytest.mark.parametrize(
    "open", [gym_simulator, *map(vector_simulator, AutoresetMode)], ids=lambda x: x.__qualname__
)
def test_true_values_are_fixed_points_however_episodes_begin(open):
    """With true values, every return equals the value, at ends and cuts too; and no slot that is
    learned from spans two episodes."""
    task = HostTask("cycle", 2, OBSERVATION, open)
    uniform = Policy(lambda seen: jnp.zeros((*seen.shape[:-1], 2)))
    ((rollout, episodes),) = collected(task, uniform, jax.random.split(jax.random.key(0), 1), 40, 2)
    values = jnp.asarray(host_probes.true_values(np.asarray(rollout.observation)))
    trace = jnp.where(rollout.segment_ends, 0.0, 0.8)
    returns = lambda_returns(values[1:], rollout.reward, rollout.discount(GAMMA), trace)
    learned = np.asarray(rollout.mask)
    np.testing.assert_allclose(returns[learned], values[:-1][learned], rtol=1e-5)
    kind, age = rollout.observation[..., 0], rollout.observation[..., 1]
    goes_on = learned & ~np.asarray(rollout.terminal)
    assert (kind[1:] == kind[:-1])[goes_on].all() and (age[1:] == age[:-1] + 1)[goes_on].all()
    assert rollout.terminal.sum() >= 8 and rollout.seam.sum() >= 8
    ended = np.asarray(episodes.ended)
    assert set(np.asarray(episodes.returns)[ended]) == {3.0, 5.0}
    assert (np.asarray(episodes.returns) == episodes.lengths)[ended].all()


def test_what_the_game_says_is_counted_whatever_is_learned_from():
    class Clipped:
        at = None

        def reset(self, seed):
            return [np.zeros((1, 2), np.float32)]

        def step(self, actions):
            self.time = getattr(self, "time", 0) + 1
            no, life = np.zeros(1, bool), np.array([self.time % 2 == 0])
            return Stepped(
                self.reset(0), np.ones(1), life, no, no,
                score=np.full(1, 10.0), over=np.array([self.time % 4 == 0]),
            )  # fmt: skip

        def picture(self):
            return None

        def close(self):
            pass

    task = HostTask("clipped", 2, OBSERVATION, lambda num_envs, workers: Clipped())
    uniform = Policy(lambda seen: jnp.zeros((*seen.shape[:-1], 2)))
    ((rollout, episodes),) = collected(task, uniform, jax.random.split(jax.random.key(0), 1), 8, 1)
    np.testing.assert_array_equal(rollout.reward[:, 0], 1.0)
    np.testing.assert_array_equal(rollout.terminal[:, 0], [False, True] * 4)
    np.testing.assert_array_equal(np.flatnonzero(episodes.ended[:, 0]), [3, 7])
    assert float(episodes.returns[3, 0]) == 40.0 and int(episodes.lengths[7, 0]) == 4


def test_all_kinds_of_observation_and_actions_from_a_start():
    task = envs.make("tests.host_probes:Everything:seed=1")
    assert task.num_actions == 3
    assert task.observation["picture"].dtype == np.uint8
    assert task.observation["where"].number == 7
    assert task.observation["which"].number == 4
    assert task.observation["more"][0].dtype == np.float32
    uniform = Policy(lambda seen: jnp.zeros((*seen["where"].shape, 3)))
    ((rollout, _),) = collected(task, uniform, jax.random.split(jax.random.key(0), 1), 5, 2)
    assert rollout.observation["picture"].shape == (6, 2, 36, 36, 3)
    assert rollout.observation["more"][1].shape == (6, 2, 3)
    assert rollout.observation["where"].min() >= 2 and rollout.observation["where"].max() < 7


@pytest.mark.parametrize("outer", [None, *AutoresetMode])
def test_symbols_and_actions_may_begin_below_zero(outer):
    task = envs.make("tests.host_probes:BelowZero")
    assert task.observation["at"].number == 3 and task.observation["of"].number == 4
    if outer is not None:
        copies = [host_probes.BelowZero] * 2
        task = dataclasses.replace(
            task, open=lambda *_: VectorEnvs(SyncVectorEnv(copies, autoreset_mode=outer))
        )
    uniform = Policy(lambda seen: jnp.zeros((*seen["at"].shape, 2)))
    ((rollout, _),) = collected(task, uniform, jax.random.split(jax.random.key(0), 1), 9, 2)
    assert rollout.observation["at"].min() == 0 and rollout.observation["of"].min() == 0
    played = np.asarray(rollout.mask)
    np.testing.assert_array_equal(rollout.reward[played], (np.asarray(rollout.action) == 0)[played])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "seconds", "says"),
    [
        ("NeverMade", 0.5, r"was not made within 0\.5 seconds"),
        ("MadeOnce", 60.0, "no second licence"),
    ],
)
def test_environments_that_cannot_all_be_made(name, seconds, says, workers, monkeypatch):
    monkeypatch.setattr(host_probes.NeverMade, "made", 0)
    task = envs.make(f"tests.host_probes:{name}")
    monkeypatch.setattr(making, "MOST_SECONDS", seconds)
    monkeypatch.setattr(host_probes.NeverMade, "made", 0)  # each process counts for itself
    with pytest.raises(UserError, match=f"cannot be started: .*{says}"):
        HostSource(task, 1, 4, lambda leaves: (None, None), workers=workers)


def test_an_environment_whose_making_hangs_is_refused(monkeypatch):
    monkeypatch.setattr(making, "MOST_SECONDS", 0.3)
    monkeypatch.setattr(host_probes.NeverMade, "made", 1)
    with pytest.raises(UserError, match=r"cannot be made: it was not made within 0.3 seconds"):
        envs.make("tests.host_probes:NeverMade")


def test_images_with_channels_first_are_said_not_to_be_seen():
    run = api.setup("tests.host_probes:ChannelsFirst", "actor_critic", steps=100, torso=(4,))
    assert any("images of 3×40×48, channels first" in note for note in run.notes())
    assert not any("channels" in x for x in api.setup("catch", "ppo", torso=(4,)).notes())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("tests.host_probes:Continuous", "only discrete ones"),
        ("tests.host_probes:Words", "observes a Text"),
        ("tests.host_probes:Unmakeable", "cannot be made: no display"),
        ("tests.host_probes:Corridor:speed=2", "no setting 'speed'"),
        ("tests.host_probes:Nothing", "nothing to observe"),
        ("tests.host_probes:Spaceless", "has no action_space"),
        ("tests.host_probes:Copies", "is a vector environment"),
        ("gym/CartPole-v7", "did you mean 'CartPole-v1'"),
        ("gym/no_such_module:X-v0", "no module 'no_such_module'"),
        ("gym/Pendulum-v1", "only discrete ones"),
        ("gym/CartPole-v1:speed=2", "speed"),
    ],
)
def test_mistakes_are_found_before_anything_starts(spec, says):
    with pytest.raises(UserError, match=says):
        envs.make(spec)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("raise", "RuntimeError: the glass is broken"),
        ("lines", "RuntimeError: first line.$"),
        ("exit", "SystemExit: enough"),
        ("interrupt", "KeyboardInterrupt: of its own"),
        ("generator", "GeneratorExit: of its own"),
        ("nan", "its reward is nan"),
        ("inf", "its observation is inf"),
        ("shape", r"shape \(1,\), where its space says \(2,\)"),
        ("complex", "it observes numbers of type complex"),
        ("unsure", "its terminated is nan, not true or false"),
        ("hang", "no answer within 1 seconds"),
        ("die", "its process ended with exit code 3"),
    ],
)
def test_a_fault_names_environment_step_and_seed(how, says, workers, monkeypatch):
    monkeypatch.setattr(errors, "_alone", True)  # as in our commands
    if how == "die" and not workers:
        pytest.skip("takes this process along")
    run = api.setup(
        f"tests.host_probes:Broken:how={how}", "actor_critic", steps=1000, batch=2, rollout=10,
        torso=(4,), workers=workers, step_timeout=1.0,
    )  # fmt: skip
    with pytest.raises(UserError, match=says) as error:
        lifecycle.execute(run)
    assert f"tests.host_probes:Broken:how={how} failed at step 20 (" in str(error.value)
    assert "(environment " in str(error.value) and ", seed " in str(error.value)
    assert not run.collectors


@pytest.mark.parametrize("kind", [KeyboardInterrupt, asyncio.CancelledError])
def test_what_ends_the_callers_program_is_no_fault_of_an_environment(kind):
    with pytest.raises(kind), faults():
        raise kind


def test_processes_import_nothing_from_where_the_user_stands(tmp_path, monkeypatch):
    for name in ("gymnasium", "runpy", "tempfile"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    simulator = envs.make("tests.host_probes:Cycle").open(2, 2)
    simulator.reset(0)
    simulator.close()
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("HangsAtFirst", "no answer within 1 seconds"),
        ("Unknown", "its observation, of 3 symbols, has 5"),
        ("Fractions", "observes floats, where its space says uint8"),
    ],
)
def test_a_fault_at_the_start(name, says, workers):
    with pytest.raises(UserError, match=rf"failed at step 0 \(environment 0, seed \d+\): .*{says}"):
        etude.train(
            f"tests.host_probes:{name}", "actor_critic", steps=100, batch=2, rollout=10,
            torso=(4,), workers=workers, step_timeout=1.0,
        )  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["raise", "hang"])
def test_environments_that_close_badly_cost_no_results(how, workers, tmp_path, monkeypatch):
    monkeypatch.setattr(collector, "CLOSING", 1.5)
    spec = f"tests.host_probes:ClosesBadly:how={how},pids={tmp_path / 'pids'}"
    result = etude.train(
        spec, "actor_critic", steps=100, batch=2, rollout=10, torso=(4,), workers=workers
    )
    assert result.summary["environment_steps"] >= 100
    children = [int(x) for x in (tmp_path / "pids").read_text().split()]
    assert len(children) == 2
    if how == "hang" and not workers:  # such children are nobody's but the environment's
        for pid in children:
            os.kill(pid, signal.SIGKILL)
    else:
        time.sleep(0.1)
        assert not any(map(is_alive, children))


def test_training_is_the_same_whenever_it_is_repeated_and_learns():
    rule = "actor_critic:bins=601,scale_values=false"  # quick on so short a run
    settings = dict(steps=6000, batch=8, rollout=16, torso=(16,), learning_rate=1e-2, seeds=2)
    both = [
        etude.train("tests.host_probes:Corridor", rule, workers=workers, **settings)
        for workers in (0, 1)
    ]
    digests = {x.summary["params_sha256"] for x in both}
    assert len(digests) == 1
    in_turn = etude.train("tests.host_probes:Corridor", rule, lag=0, **settings)
    inside = etude.train("tests.probes:CorridorInJax", rule, **settings)
    assert in_turn.summary["params_sha256"] not in digests
    final = [x.summary["final_return"]["mean"] for x in (*both, in_turn, inside)]
    assert min(final) > 1.4  # straight to the right: 0.25 + 0.5 + 0.75
    # Taking turns is what a JAX source does; but for sums in another order, it is the same run.
    np.testing.assert_allclose(in_turn.curve[0]["loss"], inside.curve[0]["loss"], rtol=1e-4)


def test_what_episodes_came_to_is_kept_by_seed(tmp_path):
    settings = dict(batch=2, rollout=16, torso=(4,), seeds=2, learning_rate=1e-2, log_every=10)
    for workers in (0, 2):
        out = str(tmp_path / str(workers))
        etude.train(
            "tests.host_probes:Corridor", "actor_critic", out=out, steps=640, workers=workers,
            **settings,
        )  # fmt: skip
        result = etude.resume(out, 3200, trust=True)
        found, lines = result.summary["outcomes"], [x["outcomes"] for x in result.curve]
        episodes = np.sum([x["episodes"] for x in lines], axis=0)
        assert episodes.sum() == sum(x["episodes"] for x in result.curve)
        arrived = np.sum([x["sums"]["arrived"] for x in lines], axis=0)
        np.testing.assert_allclose(found["arrived"], arrived / episodes)
        assert all(3 <= time <= 7 for time in found["time"])
        assert min(found["arrived"]) > 0.2
        for told, line in zip(lines, result.curve, strict=True):
            assert sum(told["episodes"]) == line["episodes"]  # of the same rollouts


def test_replay_is_filled_before_the_first_update():
    settings = dict(
        steps=600, batch=8, rollout=5, replay_share=0.75, replay_capacity=16, torso=(4,)
    )
    outside = etude.train("tests.host_probes:Corridor", "actor_critic", lag=0, **settings)
    inside = etude.train("tests.probes:CorridorInJax", "actor_critic", **settings)
    losses = [[line["loss"] for line in x.curve] for x in (outside, inside)]
    np.testing.assert_allclose(*losses, rtol=1e-3)


RESUMABLE = """
import signal
import etude
# Whoever starts the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
etude.train("tests.host_probes:Corridor", "actor_critic", out={out!r}, steps=10**8, batch=4,
            rollout=8, torso=(4,), workers=2, log_every=5)
"""


def children_of(pid):
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(x) for x in listed.stdout.split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(how, tmp_path):
    script = RESUMABLE.format(out=str(tmp_path / "run"))
    here = os.path.dirname(os.path.dirname(host_probes.__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=here,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.jsonl").is_file() and time.monotonic() < until:
            time.sleep(0.1)
        workers = children_of(process.pid)
        assert len(workers) == 2
        process.send_signal(how)
        process.wait(30)
        until = time.monotonic() + 10
        while any(map(is_alive, workers)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(map(is_alive, workers))
    finally:
        process.kill()
        process.wait()


def test_a_run_goes_on_with_new_episodes(tmp_path):
    out = str(tmp_path / "run")
    settings = dict(batch=4, rollout=8, torso=(4,), log_every=5)
    etude.train("tests.host_probes:Corridor", "actor_critic", out=out, steps=320, **settings)
    result = etude.resume(out, 640, trust=True)
    assert result.done == 20 and len(result.curve) == 4
    agent = etude.load(out, trust=True).agent
    _, logits = agent.act(agent.start(1), jnp.zeros((1, 2)))
    assert logits.shape == (1, 2)
    run, _ = api.reopen(out, trust=True)
    assert "begin new episodes" in run.notes(resumed=True)[0] and not run.notes()


def test_what_was_looked_at_stays_as_it_was():
    task = envs.make("tests.host_probes:Drawn")
    uniform = Policy(lambda seen: jnp.zeros((*seen.shape[:-1], 2)))
    source = HostSource(task, 1, 1, lambda leaves: (uniform, None))
    picture, (seen,) = source.look()
    source.collect([], jax.random.split(jax.random.key(0), 1), 2)
    assert picture is not None and picture.max() == 0 and seen[1] == 0
    picture, (seen,) = source.look()
    assert picture is not None and picture.min() == 2 and seen[1] == 2
    source.close()


def test_registered_environments_take_settings():
    task = envs.make("gym/CartPole-v1:max_episode_steps=5")
    uniform = Policy(lambda seen: jnp.zeros((*seen.shape[:-1], 2)))
    ((rollout, episodes),) = collected(task, uniform, jax.random.split(jax.random.key(0), 1), 12, 2)
    np.testing.assert_array_equal(np.flatnonzero(rollout.seam[:, 0]), [5, 11])
    assert set(np.asarray(episodes.lengths)[np.asarray(episodes.ended)]) == {5}
    assert envs.make("gym/tests.host_probes:Corridor-v0").num_actions == 2


def test_processes_are_for_simulators_outside_jax():
    with pytest.raises(UserError, match="catch runs in it"):
        api.setup("catch", "actor_critic", workers=2)
