"""apps/explore/cluster.py: this process, processes, Dask's workers, which may be killed."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children, synchronize

import pytest

from tilewright.apps.explore import cluster
from tilewright.hw.errors import BoardError, UnsupportedError

SECONDS = 60  # that workers may take to start


def test_one_worker_is_this_process():
    with cluster.workers(1) as pool:
        assert pool is None


def test_without_dask_there_are_processes(monkeypatch):
    monkeypatch.setattr(cluster, "_has_dask", lambda: False)
    with cluster.workers(2) as pool:
        assert pool is not None and pool.submit(os.getpid).result() != os.getpid()


@pytest.mark.parametrize("dask", [True, False])
def test_without_semaphores_nothing_is_started(monkeypatch, dask):
    """As where /dev/shm is read-only: Dask's workers would never start, and never end."""

    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(synchronize.SemLock, "__init__", refused)
    monkeypatch.setattr(cluster, "_has_dask", lambda: dask)
    for start in (lambda: cluster.workers(2).__enter__(), *([lambda: cluster.begin(2, None, [])] if dask else [])):
        with pytest.raises(UnsupportedError, match="Read-only file system.*make /dev/shm writable, or use one process"):
            start()
    assert not active_children()


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", 1.0)
    with pytest.raises(BoardError, match="scheduler tcp://127.0.0.1:1: does not answer"):
        cluster.workers(1, "tcp://127.0.0.1:1").__enter__()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing():
    pytest.importorskip("distributed")
    with cluster.workers(2) as pool:
        assert pool is not None
        victim = pool.submit(os.getpid).result(SECONDS)
        futures = [pool.submit(time.sleep, 0.05) for _ in range(40)]
        os.kill(victim, signal.SIGKILL)
        assert [future.result(SECONDS) for future in futures] == [None] * 40


BEGUN = """
import os, signal
from tilewright.apps.explore import cluster

if __name__ == "__main__":
    cluster.begin(2, None, ["tilewright.sim.timing"])
    with cluster.workers(2) as pool:
        asked = lambda: __import__("sys").modules.get("tilewright.sim.timing") is not None
        assert pool.submit(asked).result(60)
        os.kill(pool.submit(os.getpid).result(60), signal.SIGKILL)
        assert all([pool.submit(asked).result(60) for _ in range(4)])
"""


@pytest.mark.slow
def test_workers_have_what_was_imported_before_they_began(tmp_path):
    """In a process of its own: others of this one may have begun without it. One that is started again has it, too."""
    pytest.importorskip("distributed")
    script = tmp_path / "begun.py"
    script.write_text(BEGUN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=4 * SECONDS)
    assert done.returncode == 0, done.stderr


def test_nothing_begins_for_one_worker_or_a_scheduler(monkeypatch):
    monkeypatch.setattr(cluster.forkserver, "ensure_running", lambda: pytest.fail("it began"))
    cluster.begin(1, None, [])
    cluster.begin(2, "tcp://127.0.0.1:1", [])


@pytest.mark.slow
def test_a_scheduler_of_another_process():
    distributed = pytest.importorskip("distributed")
    there = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with there, cluster.workers(1, there.scheduler_address) as pool:
        assert pool is not None and pool.submit(os.getpid).result(SECONDS) != os.getpid()
