"""Parts of a population: where it is split, side by side, and within a stated memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.fitting import Fitting, even
from etude.meta.discovery.parts import cut
from etude.meta.discovery.placement import InProcess
from etude.meta.discovery.run import DiscoveryRun
from etude.runs.storage import sha256_of
from etude.settings import as_bytes
from tests.probes import LearnedDiscount
from tests.test_discovery import TINY

RULE = LearnedDiscount(jnp.array(0.3), jnp.array(-0.5))

ENVS = "catch:rows=4,columns=3,tests.probes:MatchSign"


def run_of(**settings: object) -> DiscoveryRun:
    return DiscoveryRun.create(DiscoverConfig(**TINY | settings), RULE)


@pytest.fixture(scope="module")
def run() -> DiscoveryRun:
    """Of five agents, in parts of two and one in either environment."""
    return run_of(envs=ENVS, agents=5, part=(2, 1))


def test_environments_are_split_at_places_that_settings_say():
    def places(*part: int) -> list[tuple[int, int, int]]:
        found = cut(DiscoverConfig(envs="catch,bandit", agents=7, part=part))
        return [place[:3] for place in found]

    assert places() == [(0, 0, 4), (1, 0, 3)]
    assert places(2) == [(0, 0, 2), (0, 2, 2), (1, 0, 2), (1, 2, 1)]
    assert places(9, 1) == [(0, 0, 4), (1, 0, 1), (1, 1, 1), (1, 2, 1)]
    with pytest.raises(UserError, match=r"--part has 3 numbers.* for each of 2 environments"):
        places(1, 1, 1)
    with pytest.raises(UserError, match="part must be positive"):
        places(0)


def test_agents_are_the_same_however_they_are_split(run):
    whole = run_of(envs=ENVS, agents=5)
    assert [part.name for part in run.parts] == [
        "catch:rows=4,columns=3 (agents 1 to 2)",
        "catch:rows=4,columns=3 (agent 3)",
        "tests.probes:MatchSign (agent 1)",
        "tests.probes:MatchSign (agent 2)",
    ]
    assert [part.name for part in whole.parts] == whole.config.env_names
    split, together = run.init().seats, whole.init().seats
    for parts, all_of_it in ((split[:2], together[0]), (split[2:], together[1])):
        joined = jax.tree.map(lambda *xs: jnp.concatenate(xs), *parts)
        assert sha256_of(joined.key) == sha256_of(all_of_it.key)
        for a, b in zip(jax.tree.leaves(joined), jax.tree.leaves(all_of_it), strict=True):
            if jnp.issubdtype(a.dtype, jnp.floating):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_parts_side_by_side_have_the_bits_of_one_after_another(run):
    """Programs are compiled once; parts that are alike share them."""
    assert set(run.traced()) == {(0, 2), (0, 1), (1, 1)}
    found = []
    for threads in (1, 3):
        placement = InProcess(run.parts, run.programs, threads)
        other = dataclasses.replace(run)
        vars(other).update(placement=placement, programs=run.programs, _step_rule=run._step_rule)
        state, metrics = other.init(), []
        for step in range(3):
            state, row = other.advance(state, step, 1)
            metrics.append(row["played"])
        found.append((sha256_of(state), metrics))
        other.close()
    (alone, one), (beside, other) = found
    assert alone == beside
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert one[0][run.config.env_names[0]]["age"].shape == (1, 3)
    assert sum(x["over"].sum() for row in one for x in row.values()), "no agent was replaced"


# --- A stated memory ------------------------------------------------------------------------------


def test_memory_in_words():
    assert [as_bytes(x) for x in ("8GB", "1.5 kB", "2MiB")] == [8 * 10**9, 1500, 2 * 2**20]
    for wrong in ("8", "0GB", "GB", "8gb!", "-1GB"):
        with pytest.raises(UserError, match="Memory is given as 8GB"):
            as_bytes(wrong)


def test_as_few_parts_as_can_be_and_alike():
    assert [even(10, most) for most in (1, 2, 3, 4, 5, 9, 10, 99)] == [1, 2, 3, 4, 5, 5, 10, 10]


@dataclasses.dataclass(frozen=True)
class Pretended(Fitting):
    """Programs that take 100 bytes, and a bit more than 10 more for each agent."""

    def _extra(self, one, agents):
        return 100 + 10 * agents + agents**2 // 10


@pytest.mark.parametrize(("limit", "size"), [(10**6, 16), (200, 8), (111, 1)])
def test_parts_are_as_large_as_fits(limit, size):
    config = DiscoverConfig(**TINY | dict(agents=16, part=(1,)))
    ones = DiscoveryRun.untraced(config, RULE).parts
    fitting = Pretended(dataclasses.replace(config, memory_limit="8GB"), RULE, ones)
    assert len(ones) == 16 and fitting._size(ones[0], limit) == size
    with pytest.raises(UserError, match=r"--memory-limit 8GB is too little: .* leaves 109 B"):
        fitting._size(ones[0], 109)


def test_a_population_is_split_so_that_it_fits(run):
    """By the figures of the compiler; the settings that are kept say how."""
    programs, (two, one) = run.programs, run.parts[:2]
    alone, together = map(programs.extra_memory, (one, two))
    assert alone < together, "two agents take no more than one"
    limit = programs.state_memory(two) + (alone + together) // 2
    small = run_of(agents=2, memory_limit=f"{limit}B")
    assert small.settings()["part"] == small.config.part == (1,)
    for more, side_by_side in ((alone // 2, 1), (alone, 2)):
        room = 2 * programs.state_memory(one) + alone + more
        placement = InProcess((one, one), programs, 2, room)
        placement.prepare()
        assert placement._threads.number == side_by_side
