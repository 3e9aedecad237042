"""The model of what a discovery takes on a cluster, against numbers by hand."""

import pytest

from etude.cli import estimating
from etude.cli.commands import main
from etude.meta.discovery.cost import NETWORK, Costs, PartCost


def costs(
    *seconds: float, rule_bytes: int = 0, adding: float = 0.0, exchange: float = 0.0
) -> Costs:
    """Parts have as many agents as seconds; their states take 10 bytes, 20, 30, …"""
    parts = [
        PartCost(f"part {i}", x, 1.0, max(1, int(x)), 10 * (i + 1), i, 100)
        for i, x in enumerate(seconds)
    ]
    return Costs(tuple(parts), rule_bytes, adding, max(adding, exchange))


def test_a_meta_step_lasts_as_long_as_the_busiest_worker():
    found = costs(3.0, 1.0, 2.0)
    each = [found.on(n).seconds for n in (1, 2, 3, 9)]
    assert each == pytest.approx([6.0, 3.0, 3.0, 3.0])
    assert found.on(9).workers == 3
    assert found.end_of_scaling() == 2
    assert found.steps == 300


def test_memory_is_that_of_all_agents_and_of_what_runs_at_once():
    found = costs(3.0, 1.0, 2.0)  # agents of 10, 20, 30; 0, 1, 2 beside them
    assert [found.on(n).memory for n in (1, 2, 3)] == [60 + 2, 50 + 2, 30 + 2]
    assert [found.on(1, threads=n).memory for n in (1, 2, 3)] == [62, 63, 63]


def test_cores_of_a_worker_share_its_parts_out():
    found = costs(3.0, 1.0, 2.0)
    assert [found.on(1, threads=n).seconds for n in (1, 2, 3)] == pytest.approx([6.0, 3.0, 3.0])


def test_parts_are_shared_out_by_their_agents_as_in_a_run():
    """What they take is not known there before the run."""
    each = [PartCost(str(i), x, 1.0, 1, 0, 0, 1) for i, x in enumerate((10.0, 1.0, 10.0, 1.0))]
    assert Costs(tuple(each), 0, 0.0, 0.0).on(2).seconds == pytest.approx(20.0)


def test_the_driver_limits_what_many_workers_gain():
    found = costs(*[1.0] * 100, adding=0.05)
    assert found.on(100).seconds == pytest.approx(5.0)  # 100 sums, while each works for 1 s
    assert found.on(10).seconds == pytest.approx(10.05)
    assert found.end_of_scaling() == 20


def test_the_rule_is_sent_to_workers_and_updates_and_agents_come_back():
    found = costs(1.0, 1.0, rule_bytes=int(NETWORK)).on(2)
    assert found.seconds == pytest.approx(2 + 2)  # both send theirs, and are sent it before
    assert found.moved == 4 * NETWORK + (10 + 20) / 10  # agents come with every tenth meta-step
    assert costs(1.0, exchange=0.5, adding=0.1).on(1).seconds == pytest.approx(1.5)


def test_the_command_measures_each_kind_of_part_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    measured = costs(2.0, 2.0, adding=0.1)
    seen = []

    def measure(parts, rule, programs, seed, exchange):
        seen.extend(part.name for part in parts)
        return measured

    monkeypatch.setattr(estimating, "measure", measure)
    flags = "--envs catch:rows=4,columns=3 --agents 2 --part 1 --torso 4 --batch 4 --rollout 4"
    flags += " --from metagrad --inner-updates 1 --check-every 0"
    monkeypatch.setattr("sys.argv", ["etude", "discover", *flags.split(), "--estimate"])
    monkeypatch.setattr("etude.cli.commands._configure_jax", lambda: None)
    main()
    told = capsys.readouterr().out
    assert seen == ["catch:rows=4,columns=3 (agent 1)", "catch:rows=4,columns=3 (agent 2)"]
    assert "There can be 2 workers, one per part." in told
    assert not list(tmp_path.iterdir())


def test_parts_that_were_measured_together_are_one_row():
    one, other = PartCost("a", 1.0, 1.0, 1, 1, 1, 1), PartCost("x", 2.0, 1.0, 1, 1, 1, 1)
    found = Costs((one, one._replace(name="b"), other), 0, 0.0, 0.0)
    assert list(estimating._kinds(found)) == [(one, 2), (other, 1)]


def test_numbers_of_workers_that_make_a_difference():
    found = costs(*[1.0] * 6)
    assert [x.workers for x in estimating._predictions(found, None, 1)] == [1, 2, 4, 6]
    assert [x.workers for x in estimating._predictions(found, 3, 1)] == [1, 2, 3, 4, 6]
    assert [x.workers for x in estimating._predictions(found, 99, 1)] == [1, 2, 4, 6]
