"""Several devices in one process, eight of which are simulated here."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import etude
from etude import api
from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.placing import devices
from etude.runs.storage import sha256_of
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY as TINY_DISCOVERY

TINY = dict(env="bandit", rule="policy_gradient", torso=(4,), batch=8, rollout=4, log_every=2)

LEARNED = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))


def test_shares_are_split_and_joined_where_they_are():
    tree = {"x": jnp.arange(16.0).reshape(16, 1), "key": jax.random.split(jax.random.key(0), 16)}
    with devices.using(4):
        shares = devices.Shares.of(16, "--seeds", part=2)
    parts = shares.split(tree)
    assert [len(x) for x in parts] == [2] * 4
    assert np.asarray(parts[1][0]["x"]).ravel().tolist() == [4.0, 5.0]
    for place, own in enumerate(parts):
        assert {x.device for x in jax.tree.leaves(own)} == {jax.devices()[place]}
    joined = shares.join(parts)
    assert sha256_of(joined) == sha256_of(tree)
    assert len(joined["x"].sharding.device_set) == 4


def test_any_number_of_devices_gives_the_same_bits():
    found = {}
    for number in (1, 2, 4):
        result = etude.train(**TINY, seeds=8, part=2, steps=192, devices=number)
        found[number] = result.summary["params_sha256"], result.summary["final_return"]
    assert found[1] == found[2] == found[4]


def test_a_run_goes_on_with_another_number_of_devices(tmp_path):
    folder, settings = str(tmp_path / "run"), TINY | dict(seeds=4, part=2)
    whole = etude.train(**settings, steps=192)
    etude.train(**settings, steps=96, devices=2, out=folder)
    rest = etude.resume(folder, 192)
    assert rest.summary["params_sha256"] == whole.summary["params_sha256"]


def test_a_single_agents_batch_is_shared_out():
    """Its gradient is the same but for the order of sums, and little has to move."""
    agents = {}
    for number in (1, 4):
        with devices.using(number):
            run = api.setup(**TINY | dict(rule="actor_critic:bins=0"), steps=640)
        state, _ = run.advance(run.init(), 0, 2)
        for done in range(2, 20, 2):
            state, _ = run.advance(state, done, 2)
        agents[number] = jax.device_get(state.learner.agent)
    for one, four in zip(*map(jax.tree.leaves, agents.values()), strict=True):
        np.testing.assert_allclose(four, one, atol=1e-5)
    reward = state.world.actors.episode_return
    assert len(reward.sharding.device_set) == 4 and reward.addressable_shards[0].data.shape == (
        1,
        2,
    )
    program = run._compiled[0].as_text()
    assert "all-reduce" in program  # of the gradient
    gathered = re.findall(r"= \w+\[([\d,]*)\]\S* all-gather\(", program)
    largest = max((np.prod([int(x) for x in sides.split(",")]) for sides in gathered), default=0)
    assert largest <= 4 * 8  # what the log of episodes is told, not what was observed


def test_the_parts_of_a_population_are_on_devices_in_turn():
    settings = TINY_DISCOVERY | dict(envs="tests.probes:MatchSign", agents=4, part=(1,))
    settings |= dict(inner_updates=1)
    found = []
    for number in (1, 4, 2):
        with devices.using(number):
            run = DiscoveryRun.create(DiscoverConfig(**settings), LEARNED)
        state, _ = run.advance(run.init(), 0, 2)
        found.append(sha256_of(state))
        run.close()
    assert found[0] == found[1] == found[2]
    first = jax.devices()
    assert [part.device for part in run.parts] == [first[0], first[1]] * 2
    assert {x.device for x in jax.tree.leaves(state.seats[1])} == {first[1]}


def test_a_population_has_parts_for_all_devices():
    settings = TINY_DISCOVERY | dict(envs="catch:rows=4,columns=3", agents=3)
    with devices.using(2), pytest.raises(UserError, match="a smaller --part makes more"):
        DiscoveryRun.untraced(DiscoverConfig(**settings), LEARNED)


@pytest.mark.parametrize(
    ("number", "settings", "reason"),
    [
        (9, {}, "--devices 9 is more than there are: JAX finds 8 cpu devices."),
        ("many", {}, "--devices must be a number from 1, or all, not many."),
        (2, dict(seeds=3), "2 devices cannot share out --seeds 3 equally"),
        (2, dict(seeds=6, part=2), "in parts of 2 (--part) equally: it must be a multiple of 4."),
        (3, {}, "3 devices cannot share out 8 environments of a batch equally."),
        (2, dict(rule="metagrad"), "2 devices cannot share out --seeds 1 equally"),
    ],
)
def test_what_cannot_be_shared_out_is_said(number, settings, reason):
    with pytest.raises(UserError, match=re.escape(reason)):
        etude.train(**TINY | settings, devices=number)
