"""Workers for slow jobs as an executor of `concurrent.futures`: processes on this machine, or a cluster of Dask.

Dask is optional, and imported in this module alone.
"""

from __future__ import annotations

import logging
import multiprocessing
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import forkserver
from typing import Any

from ...compiler.jobs import check_semaphores, processes
from ...hw.errors import BoardError
from ...hw.needs import need

RETRIES = 3  # of a job whose worker ended
_CONNECT = 10.0  # seconds
# of Dask on this machine: workers are forked from a process that has imported what they need; nothing samples their
# stacks, and its loops wake once a second, because they take the time of workers
_LOCAL = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}


def begin(count: int, scheduler: str | None, modules: Sequence[str]) -> None:
    """Begin to import `modules` for `workers` of the same arguments, while this process does other work.

    One process imports them, and Dask's workers on this machine are forked from it, also those that are started again.
    Modules must start no thread. Raises as `check_semaphores`.
    """
    if count > 1 and scheduler is None and _has_dask():
        check_semaphores()
        multiprocessing.get_context("forkserver").set_forkserver_preload(["distributed", *modules])
        forkserver.ensure_running()


@contextmanager
def workers(count: int, scheduler: str | None = None) -> Iterator[Executor | None]:
    """`count` processes, or all workers of the Dask scheduler at the address `scheduler` (`tcp://host:port`).

    One process is this one: None, which `run` of compiler/jobs.py takes as such. A worker of Dask that ends is started
    again by its nanny, and its jobs go to others. Raises `UnsupportedError` where a scheduler is given and Dask is not
    installed, or as `check_semaphores`; `BoardError` where no scheduler answers.
    """
    if scheduler is not None:
        need("--scheduler", "explore", "distributed")
        with _client(scheduler) as client:
            yield client.get_executor(retries=RETRIES, pure=False)
    elif count == 1:
        yield None
    elif _has_dask():
        with _local(count) as client:
            yield client.get_executor(retries=RETRIES, pure=False)
    else:
        with processes(count) as pool:
            yield pool


def _has_dask() -> bool:
    return find_spec("distributed") is not None


@contextmanager
def _client(address: str) -> Iterator[Any]:
    from distributed import Client
    from distributed.comm.addressing import get_address_host_port

    try:
        # before a client is made: one whose constructor fails blocks whatever thread frees it later
        socket.create_connection(get_address_host_port(address, strict=True), _CONNECT).close()
        client = Client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as exc:
        text = " ".join(str(exc).split())[:120]
        raise BoardError(
            f"scheduler {address}: does not answer ({text}); start one with `dask scheduler`, or leave --scheduler out"
        ) from None
    with client:
        yield client


@contextmanager
def _local(count: int) -> Iterator[Any]:
    check_semaphores()  # here: a cluster whose workers do not start never ends
    from dask.config import set as configured
    from distributed import Client, LocalCluster

    # any free port: without an address Dask takes a fixed one, and says so where that is taken
    quiet: dict[str, Any] = {"dashboard_address": ":0", "scheduler_kwargs": {"dashboard": False}}
    with configured(_LOCAL):
        cluster = LocalCluster(n_workers=0, threads_per_worker=1, silence_logs=logging.ERROR, **quiet)
        with cluster, Client(cluster, set_as_default=False) as client:
            cluster.scale(count)  # does not wait for them: jobs do
            yield client
