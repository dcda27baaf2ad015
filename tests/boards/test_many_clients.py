"""boards/server.py with many clients at once, well-behaved and others; clients, workers and servers that are killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from tests.boards.test_server import ENDLESS, ONE, TINY, TOKEN, counting, endless, serving, values, wait_for
from tilewright.boards import client as client_module
from tilewright.boards import messages
from tilewright.boards.client import Address, Client, RemoteProgram
from tilewright.boards.server import chunks
from tilewright.boards.worker import Limits
from tilewright.hw.errors import BoardError, FileError, HangError, InputError
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import Program
from tilewright.sim.memory import put

SEED = 5
OWN = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own for each client, as in other processes
SERVER = f"""
import sys
from tilewright.boards.server import Server
from tilewright.boards.worker import Offer
from tilewright.hw.config import PRESETS
server = Server(Offer("model", PRESETS["tiny"], {{"capacity": 1 << 24}}), port=int(sys.argv[1]), token="{TOKEN}")
server.start()
print(server.port, flush=True)
sys.stdin.read()
server.stop()
"""
CLIENT = f"""
import sys
import numpy as np
from tilewright.boards.client import Address, RemoteProgram
from tilewright.runtime.executable import Executable
program = Executable.load(sys.argv[2])
print("begin", flush=True)
while True:
    with RemoteProgram(program, Address(f"localhost:{{sys.argv[1]}}", "{TOKEN}")) as remote:
        remote.run({{"x": np.zeros((8, 1, 4), np.int32)}})
"""


@pytest.fixture
def own_connections(monkeypatch):
    """Channels of this process share a connection otherwise."""
    made = grpc.insecure_channel
    monkeypatch.setattr(
        client_module.grpc, "insecure_channel", lambda target, options=(): made(target, [*options, *OWN])
    )


def behaves(address, program, k):
    """Two runs with inputs of its own, and what they must give."""
    with RemoteProgram(program, address) as remote:
        for turn in range(2):
            x = values(1000 * turn + k)
            np.testing.assert_array_equal(remote.run({"x": x})["y"], 2 * x)


def never_ends(address, program, k):
    with RemoteProgram(endless(), address) as remote, pytest.raises(HangError, match="the time limit of one job"):
        remote.run(ENDLESS)


def sends_garbage(address, program, k):
    client = Client(address)
    data = np.random.default_rng(k).bytes(3000)
    request = messages.make("LoadRequest", program=data).SerializeToString()
    try:
        with pytest.raises((FileError, InputError, BoardError)):
            messages.raise_failure(messages.parse("LoadReply", client.call("Load", request)).failure)
    finally:
        client.close()


def goes_away(address, program, k):
    """Its call is under way, or waits, when the connection ends."""
    with RemoteProgram(program, address) as remote:
        request = remote._request(messages.tensors({"x": values(k)}))
        with grpc.insecure_channel(address.target, OWN) as channel:
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            channel.stream_unary(f"/{messages.SERVICE}/Run").future(
                chunks(request.SerializeToString()), metadata=metadata
            )


@pytest.mark.circuit
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_many_clients_at_once(count, double, own_connections):
    """Seven of ten are served, and none sees the errors of the others; `rest` of the seven ask for what never ends."""
    rest = {5, count - 5} if count > 100 else {5}
    kinds = [behaves] * 7 + [sends_garbage, goes_away, sends_garbage]
    limits = Limits(max_bytes=1 << 20, max_seconds=1, queue=2 * count)
    program, ended, wrong = Executable.from_launch(double()), [], []
    with serving(limits=limits) as server, ThreadPoolExecutor(count) as pool:

        def client(k):
            work = never_ends if k in rest else kinds[k % 10]
            try:
                work(Address(f"localhost:{server.port}", TOKEN), program, k)
                ended.append(work.__name__)
            except BaseException as exc:
                wrong.append(f"client {k}, {work.__name__}: {exc!r:.300}")

        list(pool.map(client, range(count)))
        behaves(Address(f"localhost:{server.port}", TOKEN), program, 1)
    assert not wrong, wrong
    assert ended.count("behaves") == count * 7 // 10 - len(rest)
    assert ended.count("never_ends") == len(rest)


def started(port=0):
    """(a server in a process of its own, its port)"""
    running = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout
    return running, int(running.stdout.readline())


def ended(process):
    """Kill a process, as a user or the system does, and forget it."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_a_server_that_is_killed_and_comes_again(double):
    """Its clients get a named error at once; the same client is served by the next one at this address."""
    server, port = started()
    with RemoteProgram(Executable.from_launch(double()), Address(f"localhost:{port}", TOKEN)) as remote:
        np.testing.assert_array_equal(remote.run({"x": values(1)})["y"], 2 * values(1))
        ended(server)
        with pytest.raises(BoardError):
            remote.run({"x": values(2)})
        again, same = started(port)
        assert same == port
        for _ in range(100):  # gRPC waits before it connects again
            try:
                found = remote.run({"x": values(3)})["y"]
                break
            except BoardError:
                time.sleep(0.2)
        ended(again)
    np.testing.assert_array_equal(found, 2 * values(3))


@pytest.mark.parametrize("on", ["model", "timing", "rtl"])
def test_a_client_that_is_killed_frees_the_device(on, tmp_path):
    """Its run, of hours, is stopped in the process of the device: the state of others stays."""
    if on == "rtl":
        pytest.importorskip("amaranth")
    p = Program(TINY, "hours")
    x, y = p.buffer("x", (8, 1, 4), 32), p.buffer("y", (8, 1, 4), kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=8)
    for _ in range(2000):
        p.alu(AluOp.MUL, [(2, 0, 0), (2, 0, 0)])
    p.store(0, y, 0, x_size=8)
    launch, fmt = p.finish(), Isa(TINY).formats["ALU"]
    for k in np.flatnonzero(fmt.decode(launch.insn)["op"] == Op.ALU):
        for name in ("iter_out", "iter_in"):
            put(launch.insn[k], fmt.fields[name], 1000)
    Executable.from_launch(launch).save(tmp_path / "x.tw")
    limits = Limits(max_bytes=1 << 20, max_seconds=3600, queue=4)
    with (
        serving(on, limits=limits) as server,
        RemoteProgram(counting(), Address(f"localhost:{server.port}", TOKEN, seconds=120)) as remote,
    ):
        assert remote.run(ONE)["y"][0] == 1
        command = [sys.executable, "-c", CLIENT, str(server.port), str(tmp_path / "x.tw")]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_for(lambda: len(server._programs) == 2 and server._waiting == 1)
        ended(client)
        assert remote.run(ONE)["y"][0] == 2


@pytest.mark.slow
def test_clients_that_are_killed_at_random_moments(double, tmp_path):
    """While they connect, load, wait, run, or read; another client's results stay right."""
    Executable.from_launch(double()).save(tmp_path / "x.tw")
    print(f"seed {SEED}")
    with serving() as server:
        rng, address = random.Random(SEED), Address(f"localhost:{server.port}", TOKEN)
        with RemoteProgram(Executable.load(tmp_path / "x.tw"), address) as remote:
            for k in range(12):
                command = [sys.executable, "-c", CLIENT, str(server.port), str(tmp_path / "x.tw")]
                client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                assert client.stdout and client.stdout.readline() == "begin\n"
                time.sleep(rng.uniform(0, 0.15))
                ended(client)
                np.testing.assert_array_equal(remote.run({"x": values(k)})["y"], 2 * values(k))
        wait_for(lambda: server._waiting == 0)


@pytest.mark.slow
def test_a_worker_that_is_killed_at_random_moments(double):
    """Each call gives the right result, or says that the process ended; the next one is served."""
    rng, served, lost = random.Random(SEED), 0, 0
    print(f"seed {SEED}")
    with serving() as server:
        with RemoteProgram(Executable.from_launch(double()), Address(f"localhost:{server.port}", TOKEN)) as remote:
            for k in range(12):
                process = server._worker._process
                timer = threading.Timer(rng.uniform(0, 0.02), process.kill)
                timer.start()
                while process.is_alive():
                    try:
                        np.testing.assert_array_equal(remote.run({"x": values(k)})["y"], 2 * values(k))
                        served += 1
                    except BoardError as exc:
                        assert "the process ended" in str(exc)
                        lost += 1
                timer.join()
                for _ in range(2):  # one that met the end, at most
                    try:
                        np.testing.assert_array_equal(remote.run({"x": values(k)})["y"], 2 * values(k))
                        break
                    except BoardError as exc:
                        assert "the process ended" in str(exc)
                else:
                    pytest.fail("two calls after one end were lost")
        assert served
