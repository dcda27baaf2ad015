"""boards/worker.py: programs on a device without a process around (test_server.py has one); sessions; limits."""

import hashlib
import multiprocessing
import os
import signal
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.boards import messages, worker
from tilewright.boards.worker import ID, KEPT, KEPT_SESSIONS, Jobs, Limits, Offer, Sessions, Worker
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, CapacityError, FileError, HangError, InputError
from tilewright.runtime.executable import Executable
from tilewright.sim.model.device import ModelDevice

TINY = PRESETS["tiny"]


def programs(double, count):
    """(digest, contents) of `count` programs that differ in their names."""
    found = []
    for k in range(count):
        launch = double()
        launch.name = f"double{k}"
        data = Executable.from_launch(launch).to_bytes()
        found.append((hashlib.sha256(data).digest(), data))
    return found


def with_room(nbytes):
    """A device with so much memory beside that of the wiping program."""
    device = ModelDevice(TINY)
    Jobs(device, Limits())
    return ModelDevice(TINY, capacity=max(end for _, end in device._used) + nbytes)


def run(jobs, digest, session=bytes(ID)):
    x = np.arange(32, dtype=np.int32).reshape(8, 1, 4)
    reply = jobs.run(messages.make("RunRequest", digest=digest, session=session, inputs=messages.tensors({"x": x})))
    if reply.unknown:
        return False
    messages.raise_failure(reply.failure)
    np.testing.assert_array_equal(messages.arrays(reply.outputs)["y"], 2 * x)
    return True


def test_the_programs_used_last_stay_placed(double):
    device = ModelDevice(TINY)
    jobs, found = Jobs(device, Limits()), programs(double, KEPT + 1)
    for digest, data in found[:KEPT]:
        assert not jobs.load(digest, data).failure
    assert run(jobs, found[0][0])
    jobs.load(*found[KEPT])
    assert [run(jobs, digest) for digest, _ in found] == [True, False, *[True] * (KEPT - 1)]
    jobs.close()
    assert not device._used


def test_a_run_needs_a_session_that_nobody_guesses(double):
    jobs, ((digest, data),) = Jobs(ModelDevice(TINY), Limits()), programs(double, 1)
    jobs.load(digest, data)
    with pytest.raises(InputError, match="a session of 1 bytes; every run names one of 16"):
        run(jobs, digest, b"x")


def test_room_is_made_where_memory_is_short(double):
    jobs, found = Jobs(with_room(600), Limits()), programs(double, 3)
    for digest, data in found:
        assert not jobs.load(digest, data).failure and run(jobs, digest)
    assert not run(jobs, found[0][0])


def test_a_program_that_fits_no_empty_device_either(double):
    jobs = Jobs(with_room(100), Limits())
    with pytest.raises(CapacityError, match="device memory"):
        messages.raise_failure(jobs.load(*programs(double, 1)[0]).failure)


def test_a_program_that_unpacks_to_too_much(double):
    jobs = Jobs(ModelDevice(TINY), Limits(max_bytes=500))
    with pytest.raises(FileError, match="the program: unpacks to .* bytes; at most 500 are allowed"):
        messages.raise_failure(jobs.load(*programs(double, 1)[0]).failure)


def test_the_memory_that_a_process_has_taken(monkeypatch):
    """What a job may take comes on top."""
    before, more = worker._taken(), np.empty(1 << 26, np.uint8)
    assert worker._taken() - before >= more.nbytes > 0
    monkeypatch.setattr(worker, "Path", lambda name: Path("/no/such/file"))
    assert worker._taken() == 0


def test_a_signal_that_comes_before_the_job_is_sent_again(monkeypatch):
    """The process ignores it while it reads a large request, and must not be killed for that."""
    parent, sent = Worker(Offer("model", TINY), Limits()), []
    parent._process = process = SimpleNamespace(pid=0)
    parent._pipe, theirs = multiprocessing.Pipe()

    def kill(pid, number):
        sent.append(number)
        if len(sent) == 3:
            theirs.send_bytes(b"stopped")

    monkeypatch.setattr(worker.os, "kill", kill)
    with pytest.raises(CancelledError):
        parent.run(b"", lambda: False)
    assert parent._process is process and sent == [signal.SIGUSR1] * 3


def test_a_process_that_does_not_read_is_killed(monkeypatch):
    """The request is larger than what a pipe holds."""
    monkeypatch.setattr(worker, "_END", 0.1)
    parent = Worker(Offer("model", TINY), Limits(max_seconds=0.1))
    parent.start()
    process = parent._process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(HangError, match="the job was stopped after 0.1 s, the time limit of one job"):
        parent.run(bytes(1 << 24), lambda: True)
    assert process.exitcode == -signal.SIGKILL and parent._process is None


PROGRAM = b"p"


def session(k):
    return k.to_bytes(ID, "little")


def state(value, count=4):
    return {"s": np.full(count, value, np.int8)}


def test_a_session_finds_what_it_left():
    sessions = Sessions(100)
    key, other = (session(1), PROGRAM), (session(2), PROGRAM)
    assert sessions.find(key, 0) is None
    sessions.keep(key, 1, state(7))
    found = sessions.find(key, 1)
    assert found is not None and found["s"].tolist() == [7] * 4 and sessions.find(key, 0) is None
    for wrong, runs, before in ((key, 2, "1"), (other, 1, "none"), ((session(1), b"q"), 1, "none")):
        with pytest.raises(BoardError, match=f"state after {runs} runs .after {before}.: .* reset the program"):
            sessions.find(wrong, runs)
    sessions.end(session(1))
    with pytest.raises(BoardError):
        sessions.find(key, 1)


def test_those_used_last_stay():
    sessions = Sessions(1 << 20)
    for k in range(KEPT_SESSIONS + 1):
        sessions.keep((session(k), PROGRAM), 1, state(k % 100))
        assert sessions.find((session(0), PROGRAM), 1) if k < KEPT_SESSIONS else True
    with pytest.raises(BoardError):
        sessions.find((session(0), PROGRAM), 1)
    assert sessions.find((session(KEPT_SESSIONS), PROGRAM), 1)


def test_bytes_are_counted():
    sessions = Sessions(10)
    for k in range(3):
        sessions.keep((session(k), PROGRAM), 1, state(k))
    with pytest.raises(BoardError):
        sessions.find((session(0), PROGRAM), 1)
    assert sessions.find((session(1), PROGRAM), 1)
    with pytest.raises(CapacityError, match="the program's state has 11 bytes; at most 10 are kept"):
        sessions.keep((session(1), PROGRAM), 1, state(0, 11))


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
