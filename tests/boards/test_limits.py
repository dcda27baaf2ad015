"""boards/worker.py: what a server allows on machines of different sizes."""

import os

import pytest

from tilewright.boards import worker


@pytest.mark.parametrize(
    "memory, request_mb, job_mb", [(512 << 20, 32, 256), (1 << 30, 64, 512), (16 << 30, 64, 4096), (64 << 30, 64, 4096)]
)
def test_they_follow_from_the_machines_memory(monkeypatch, memory, request_mb, job_mb):
    pages = {"SC_PHYS_PAGES": memory >> 12, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    found = worker.Limits()
    assert (found.max_bytes, found.max_memory) == (request_mb << 20, job_mb << 20)
    assert found.held_bytes + found.max_memory <= memory


def test_given_ones_stay():
    found = worker.Limits(max_bytes=10, max_memory=20, max_seconds=2, queue=3)
    assert (found.max_bytes, found.max_memory, found.held_bytes, found.calls, found.call_seconds) == (10, 20, 40, 7, 14)


@pytest.mark.parametrize("files, connections", [(1024, 896), (100, 16), (1 << 20, 2048), (-1, 2048)])
def test_connections_leave_files_to_the_process(monkeypatch, files, connections):
    assert worker.resource.RLIM_INFINITY == -1
    monkeypatch.setattr(worker.resource, "getrlimit", lambda which: (files, files))
    assert worker.most_connections() == connections
