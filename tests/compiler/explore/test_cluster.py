"""compiler/explore/cluster.py: this process, processes, Dask's workers, which may be killed."""

import os
import signal
import time

import pytest

from tilewright.compiler.explore import cluster
from tilewright.hw.errors import BoardError

SECONDS = 60  # that workers may take to start


def test_one_worker_is_this_process():
    with cluster.workers(1) as pool:
        assert pool is None


def test_without_dask_there_are_processes(monkeypatch):
    monkeypatch.setattr(cluster, "_has_dask", lambda: False)
    with cluster.workers(2) as pool:
        assert pool is not None and pool.submit(os.getpid).result() != os.getpid()


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", "1s")
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


@pytest.mark.slow
def test_a_scheduler_of_another_process():
    distributed = pytest.importorskip("distributed")
    there = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with there, cluster.workers(1, there.scheduler_address) as pool:
        assert pool is not None and pool.submit(os.getpid).result(SECONDS) != os.getpid()
