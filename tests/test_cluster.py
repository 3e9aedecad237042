"""Discovery and jobs on a real Ray cluster of three nodes, all of it on this machine's loopback."""

import contextlib
import dataclasses
import importlib.util
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.meta.discovery.config import DiscoverConfig
from etude.meta.discovery.run import DiscoveryRun
from etude.placing import places, rays, sweeper
from etude.placing.cluster import ClusterOptions
from etude.placing.job import LOG, Job
from etude.placing.ray_places import RayPlaces
from etude.placing.rays import connect, set_out
from etude.placing.running import run_jobs
from etude.rules.metagrad import MetaGrad, MetaGradConfig
from etude.runs.folder import RunFolder
from etude.runs.lifecycle import execute
from etude.runs.lifecycle import start as start_run
from tests.test_cli import ROOT, kill_when, start
from tests.test_discovery import TINY

pytestmark = [
    # Not `importorskip`: Ray must be told a few things before it is imported.
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.slow,
    # Ray's own: files and sockets that it leaves to the collector, and what it will do one day.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
OTHER_PROCESSES = True
SETTINGS = TINY | dict(agents=3, part=(1,), meta_steps=6, log_every=1)


@pytest.fixture(scope="module")
def cluster():
    """Three nodes with a core each; the first one is where this process is connected."""
    set_out("127.0.0.1:1")
    # Whether other processes of this machine leave it enough memory is not what is tested here.
    os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112
    from ray.cluster_utils import Cluster

    own = dict(num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1")
    found = Cluster(initialize_head=True, head_node_args=own | dict(include_dashboard=False))
    found.own = own
    for _ in range(2):
        found.add_node(**own)
    disconnect = connect(found.address)
    yield found
    disconnect()
    found.shutdown()


@pytest.fixture(scope="module")
def alone() -> DiscoveryRun:
    return DiscoveryRun.create(DiscoverConfig(**SETTINGS), MetaGrad(MetaGradConfig()))


@pytest.fixture(scope="module")
def expected(alone):
    """The rule, and all that is logged, of one process."""
    return outcome(execute(alone))


def outcome(result):
    curve = [{k: x for k, x in row.items() if k != "seconds"} for row in result.curve]
    return result.summary["rule_sha256"], curve


def on(alone: DiscoveryRun, cluster, workers: int, told: list[str], timeout: float = 300.0):
    options = ClusterOptions(cluster.address, workers=workers, worker_timeout=timeout)
    return alone.on(options, told.append)


def process_ids(run: DiscoveryRun) -> list[int]:
    """Of workers that have something to do."""
    workers = run.placement._workforce._workers.values()
    names = [worker.name for worker in workers if worker.pieces]
    return [int(re.findall(r"process (\d+)", name)[0]) for name in names]


def wait_for(holds, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    assert holds()


def test_one_worker_has_the_bits_of_one_process(alone, cluster, expected):
    told = []
    run = on(alone, cluster, 1, told)
    assert outcome(execute(run)) == expected
    assert not any("is lost" in text for text in told), told


def test_a_worker_that_is_killed_and_one_that_hangs(alone, cluster, expected):
    told, hung = [], []
    run = on(alone, cluster, 2, told, timeout=15.0)

    def injure(record):
        if record["updates"] == 2:
            assert "2 workers" in run.describe(record)
            os.kill(process_ids(run)[0], signal.SIGKILL)
        if record["updates"] == 4:
            hung.append(process_ids(run)[-1])
            os.kill(hung[0], signal.SIGSTOP)

    try:
        assert outcome(execute(run, on_record=injure)) == expected
    finally:
        for process in hung:
            with contextlib.suppress(ProcessLookupError):  # it was killed, as it should
                os.kill(process, signal.SIGCONT)
    assert any("is lost" in text and "no answer for" not in text for text in told), told
    assert any("is lost (no answer for" in text for text in told), told


def test_a_node_that_is_lost_and_one_that_joins(alone, cluster, expected):
    """With three workers, one on each node. Nothing is fetched before the end."""
    told, node = [], next(iter(cluster.worker_nodes))
    run = on(alone, cluster, 3, told)

    def injure(record):
        if record["updates"] == 2:
            assert len(process_ids(run)) == 3
            cluster.remove_node(node, allow_graceful=False)
        if record["updates"] == 4:
            cluster.add_node(**cluster.own)

    assert outcome(execute(run, on_record=injure)) == expected
    assert any(re.search(r"is lost .*\d steps? (is|are) done again", text) for text in told), told


def test_a_driver_that_is_killed_goes_on_elsewhere(alone, expected, tmp_path, capfd):
    """With a cluster of its own, which ends with it, and then in one process."""
    folder = start_run(alone, str(tmp_path / "run"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    environment.pop("RAY_ADDRESS", None)
    asked = ("--resume", folder.path, "--checkpoint-seconds", 0)
    asked += ("--cluster", "local", "--workers", 2)
    process = start(environment, tmp_path, *asked, command="discover")
    kill_when(process, lambda: folder.has_checkpoint and bool(rooms(process.pid)), tmp_path)
    session = f"_{process.pid}/"
    wait_for(lambda: not any(session in x for x in commands()))
    wait_for(lambda: not rooms(process.pid))
    assert folder.summary() is None and folder.updates_done >= 1
    assert outcome(execute(alone, folder)) == expected


def rooms(driver: int) -> list[Path]:
    """What is left of the folders of a driver's own cluster."""
    return list(Path(rays.place_of_rooms()).glob(f"{rays.ROOM}*/ray/session_*_{driver}"))


def commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_what_a_worker_cannot_do_ends_the_run_with_a_sentence(alone, cluster):
    config = dataclasses.replace(alone.config, envs="tests.nowhere:Nothing")
    run = dataclasses.replace(on(alone, cluster, 1, []), config=config)
    with pytest.raises(UserError, match=r"there is no module 'tests.nowhere' \(on .*process"):
        execute(run)


def test_jobs_run_on_machines_of_the_cluster(cluster, tmp_path):
    def job(name: str, *command: str) -> Job:
        RunFolder.create(str(tmp_path / name), "").write_config({"kind": "train"})
        log = tmp_path / name / LOG
        is_done = lambda: log.exists() and "actor_critic" in log.read_text()  # noqa: E731
        return Job(name, command, tmp_path / name, is_done, lambda: 0.0)

    options = ClusterOptions(cluster.address)
    assert RayPlaces(options).number >= 2
    jobs = [job("good", "rules"), job("bad", "train", "--env", "catch:rows=0")]
    unseen = dataclasses.replace(job("unseen", "rules"), folder=tmp_path / "elsewhere")
    failed = run_jobs([*jobs, unseen], RayPlaces(options), keep_going=True)
    assert failed.keys() == {"bad", "unseen"} and "rows" in failed["bad"]
    assert "on a cluster, run folders must be where all machines see them" in failed["unseen"]


def listening() -> dict[str, str]:
    """The addresses that sockets are open on, by their inodes."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A":
                found[inode] = local.partition(":")[0]
    return found


def sockets_of(process: Path) -> set[str]:
    """Inodes."""
    found = set()
    for link in process.glob("fd/*"):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
    return found


def test_all_of_it_listens_on_loopback_alone(cluster):
    """This process, and all that write to the cluster's folder."""
    folder = Path(cluster.head_node.get_session_dir_path())
    addresses, seen = listening(), []
    for process in {os.getpid(), *sweeper.using(folder)}:
        sockets = sockets_of(Path("/proc", str(process)))
        seen += [addresses[x] for x in sockets if x in addresses]
    assert set(seen) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert len(seen) >= 6  # of Ray's head, and of three nodes at least one each


def answer_once(server: socket.socket, text: bytes) -> None:
    with server.accept()[0] as link:
        link.sendall(text)


def test_what_answers_must_be_a_cluster(monkeypatch):
    monkeypatch.setattr(rays, "ANSWERS_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UserError, match=f"answers at 127.0.0.1:{port}: timed out"):
            rays._require_answer(f"127.0.0.1:{port}")
        silent.accept()[0].close()
        answer = threading.Thread(target=lambda: answer_once(silent, b"HTTP/1.1 400 Bad Request"))
        answer.start()
        with pytest.raises(UserError, match="is not a Ray cluster"):
            rays._require_answer(f"127.0.0.1:{port}")
        answer.join()
    with pytest.raises(UserError, match=r"No Ray cluster answers at .*: Connection refused\."):
        rays._require_answer(f"127.0.0.1:{port}")


def test_processes_are_refused_before_a_cluster_is_looked_for():
    options = ClusterOptions("127.0.0.1:9")
    with pytest.raises(UserError, match="--processes are those of this machine"):
        places.working_on(options, 2).__enter__()
