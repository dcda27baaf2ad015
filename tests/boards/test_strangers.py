"""boards/server.py and those without its token: they hold neither its memory nor its calls. And silent clients."""

import re
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.boards.test_many_clients import started
from tests.boards.test_server import TINY, TOKEN, serving
from tilewright.boards import messages
from tilewright.boards.client import Address, Client, RemoteProgram
from tilewright.boards.server import _Gate
from tilewright.boards.worker import Limits
from tilewright.hw.errors import BoardError
from tilewright.runtime.executable import Executable

SECONDS = 120  # after which a test fails; none waits for it
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # and empty settings
CALLS = 24  # more than a server of the default queue has open
LOAD = f"/{messages.SERVICE}/Load"


@pytest.fixture(scope="module")
def process():
    """A server in a process of its own, whose memory is measured, with the default limits."""
    running, port = started()
    assert running.stdin and running.stdout
    yield running, port
    running.stdin.close()
    running.wait(SECONDS)
    running.stdout.close()


def most_memory(process):
    """The most bytes that a process has had in memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def check(address, double):
    x = np.arange(32, dtype=np.int32).reshape(8, 1, 4)
    with RemoteProgram(Executable.from_launch(double()), address) as remote:
        np.testing.assert_array_equal(remote.run({"x": x})["y"], 2 * x)


def stranger(port, bearer=""):
    """A channel with a connection of its own, and the metadata of its calls."""
    channel = grpc.insecure_channel(f"localhost:{port}", [("grpc.use_local_subchannel_pool", 1)])
    return channel, (("authorization", f"Bearer {bearer}"),) if bearer else ()


def code(call):
    error = call.exception(SECONDS)
    assert isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)
    return error.code()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("bearer", ["", "not the token, no"])
def test_bodies_of_strangers_are_not_received(process, double, bearer):
    running, port = process
    check(Address(f"localhost:{port}", TOKEN), double)
    before, body = most_memory(running), bytes(32 << 20)
    for method in ("Info", "Load", "Run", "None"):
        channel, metadata = stranger(port, bearer)
        with channel:
            call = channel.unary_unary(f"/{messages.SERVICE}/{method}")
            calls = [call.future(body, metadata=metadata, timeout=SECONDS) for _ in range(6)]
            assert {code(call) for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
    assert most_memory(running) - before < 16 << 20
    check(Address(f"localhost:{port}", TOKEN), double)


def test_calls_that_never_finish_take_no_place(process, double):
    port, over = process[1], threading.Event()

    def endless():
        yield b"first"
        over.wait(SECONDS)

    found = [stranger(port) for _ in range(3)]
    try:
        calls = [channel.stream_unary(LOAD).future(endless()) for channel, _ in found for _ in range(CALLS // 3)]
        check(Address(f"localhost:{port}", TOKEN, seconds=SECONDS), double)
        assert {code(call) for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
        assert not over.is_set()
    finally:
        over.set()
        for channel, _ in found:
            channel.close()


def test_connections_that_say_nothing_take_no_place(process, double):
    """Whether they begin to speak HTTP/2 or not."""
    before = most_memory(process[0])
    lines = [socket.create_connection(("localhost", process[1])) for _ in range(300)]
    try:
        for line in lines[::2]:
            line.sendall(PREFACE)
        assert most_memory(process[0]) - before < 16 << 20
        check(Address(f"localhost:{process[1]}", TOKEN, seconds=SECONDS), double)
    finally:
        for line in lines:
            line.close()


@pytest.fixture
def impatient():
    with serving(limits=Limits(max_bytes=1 << 20, max_seconds=1, queue=4, idle_seconds=0.2)) as server:
        yield server


@pytest.mark.parametrize("pause, text", [(None, "brought nothing for 0.2 s"), (0.02, "was not complete after 1 s")])
def test_requests_that_take_too_long_are_ended(impatient, pause, text):
    over = threading.Event()

    def slow():
        yield b"."
        while not over.wait(pause):
            yield b"."

    channel, metadata = stranger(impatient.port, TOKEN)
    with channel:
        call = channel.stream_unary(LOAD).future(slow(), metadata=metadata)
        assert code(call) == grpc.StatusCode.DEADLINE_EXCEEDED and text in call.details()
    over.set()
    assert impatient._room.held == 0


@pytest.fixture
def patient():
    with serving(limits=Limits(queue=4)) as server:
        yield server


def test_one_connection_may_have_two_calls_less_than_all(patient):
    """As the first frame that the server sends says: SETTINGS, with MAX_CONCURRENT_STREAMS (3)."""
    with socket.create_connection(("localhost", patient.port)) as line, line.makefile("rb") as answers:
        line.sendall(PREFACE)
        head = answers.read(9)
        settings = dict(struct.iter_unpack(">HI", answers.read(int.from_bytes(head[:3], "big"))))
    assert head[3] == 4 and settings[3] == patient.limits.calls - 2


def test_one_connection_leaves_calls_to_others(patient, double):
    """Also one with the token, whose requests are silent but not yet too long."""
    over, started = threading.Event(), threading.Semaphore(0)

    def silent():
        started.release()
        over.wait(SECONDS)
        yield b""

    channel, metadata = stranger(patient.port, TOKEN)
    with channel:
        calls = [channel.stream_unary(LOAD).future(silent(), metadata=metadata) for _ in range(CALLS)]
        for _ in range(patient.limits.calls - 2):
            assert started.acquire(timeout=SECONDS)
        check(Address(f"localhost:{patient.port}", TOKEN, seconds=SECONDS), double)
        for call in calls:
            call.cancel()
        over.set()


def test_calls_beyond_the_limit_are_refused(patient):
    patient._gate._open = patient.limits.calls
    with pytest.raises(BoardError, match="8 calls are already open; try later .resource_exhausted."):
        Client(Address(f"localhost:{patient.port}", TOKEN)).info()
    patient._gate._open = 0
    client = Client(Address(f"localhost:{patient.port}", TOKEN))
    for _ in range(20):  # each gives its place back
        assert client.info()[1] == TINY


class Context:
    """Of a call whose caller does not take the reply."""

    def __init__(self):
        self.cancelled, self.callbacks = threading.Event(), []

    def cancel(self):
        self.cancelled.set()
        for callback in self.callbacks:
            callback()

    def add_callback(self, callback):
        self.callbacks.append(callback)
        return True


def test_every_call_has_a_deadline_of_the_server():
    gate = _Gate(TOKEN, Limits(max_seconds=0.01, queue=1))
    context: Any = Context()
    gate._open = 1
    assert gate._timed(lambda chunks, context: b"reply", iter(()), context) == b"reply"
    assert context.cancelled.wait(SECONDS)
    assert gate._open == 0


def test_the_server_makes_a_token_where_it_gets_none(tmp_path, monkeypatch, double):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with serving(token="", limits=None) as server:
        address, kept = Address(f"localhost:{server.port}"), server.token_file
        assert kept is not None and kept.parent.parent == tmp_path
        check(address, double)
        kept.rename(tmp_path / "gone")  # as for another user, who does not see it
        with pytest.raises(BoardError, match="wrong or missing token"):
            Client(address).info()
