"""boards/server.py over loopback: two clients at once, and hostile ones."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import numpy as np
import pytest

from tilewright.boards import client as client_module
from tilewright.boards import messages
from tilewright.boards.client import Address, Client, RemoteProgram, check_server
from tilewright.boards.server import CHUNK, Room, Server, Upload, chunks
from tilewright.boards.worker import Limits, Offer
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import (
    AccessError,
    BoardError,
    CapacityError,
    ConfigError,
    FileError,
    FingerprintError,
    HangError,
    InputError,
)
from tilewright.runtime.executable import Executable, HostStep, Tensor
from tilewright.runtime.registry import open_remote

TINY, VTA = PRESETS["tiny"], PRESETS["vta"]
TOKEN = "0123456789abcdef-secret"
LIMITS = Limits(max_bytes=1 << 20, max_seconds=2, queue=4)


@contextmanager
def serving(on="model", *, cfg=TINY, limits: Limits | None = LIMITS, token=TOKEN, **options):
    """A server of a device, which runs while the block does."""
    running = Server(Offer(on, cfg, {"capacity": 1 << 26}), port=0, token=token, limits=limits, **options)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def served():
    """A server of the model, with a token."""
    with serving() as running:
        yield running


@pytest.fixture
def address(served):
    return Address(f"localhost:{served.port}", TOKEN)


def values(seed=0):
    return np.random.default_rng(seed).integers(-60, 60, (8, 1, 4), dtype=np.int32)


ENDLESS = {"x": np.zeros((1, 1, 900, 900), np.int8)}


def endless():
    """One host step that takes far longer than a job may."""
    tensors = {
        "x": Tensor("x", (1, 1, 900, 900), "int8", "input"),
        "y": Tensor("y", (1, 1, 501, 501), "int8", "output"),
    }
    attrs = {"kernel": [400, 400], "strides": [1, 1], "pads": [0, 0, 0, 0]}
    return Executable(TINY, "endless", tensors, [HostStep("pool", "max_pool", ["x"], ["y"], attrs)])


def hungry(pads):
    """One host step whose result has more bytes than a job may take."""
    shape = (1, 1, 1 + pads[0] + pads[2], 1 + pads[1] + pads[3])
    tensors = {"x": Tensor("x", (1, 1, 1, 1), "int8", "input"), "y": Tensor("y", shape, "int8", "output")}
    attrs = {"kernel": [1, 1], "strides": [1, 1], "pads": pads}
    return Executable(TINY, "hungry", tensors, [HostStep("pool", "max_pool", ["x"], ["y"], attrs)])


def test_results_and_counters_come_back(address, double):
    launch = double()
    with RemoteProgram(Executable.from_launch(launch), address) as remote:
        for seed in range(3):
            np.testing.assert_array_equal(remote.run({"x": values(seed)})["y"], 2 * values(seed))
        (step,) = remote.reports
    assert (step.name, step.where) == ("double", "device") and step.seconds > 0
    assert remote.stats.insns["LOAD.ACC"] == 1 and remote.stats.bytes_stored["OUT"] == 32
    assert remote.stats.cycles is None  # the model has no clock


def test_a_server_is_opened_by_its_address_alone(served, double, monkeypatch):
    """The token is that which a server of this user keeps."""
    monkeypatch.setattr(client_module, "find_token", lambda port: TOKEN)
    with open_remote(f"localhost:{served.port}", Executable.from_launch(double())) as remote:
        np.testing.assert_array_equal(remote.run({"x": values()})["y"], 2 * values())


def test_two_clients_share_a_server(address, double):
    def client(k):
        with RemoteProgram(Executable.from_launch(double()), address) as remote:
            for seed in range(20):
                x = values(100 * k + seed)
                np.testing.assert_array_equal(remote.run({"x": x})["y"], 2 * x)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(client, range(2)))


@pytest.fixture
def bystander(address, double):
    """A client whose results must stay right, whatever another one does in between."""
    with RemoteProgram(Executable.from_launch(double()), address) as remote:

        def check():
            np.testing.assert_array_equal(remote.run({"x": values(9)})["y"], 2 * values(9))

        check()
        yield check
        check()


def raw(address, method, data, token=TOKEN):
    """The status of a call with `data` as it stands."""
    with grpc.insecure_channel(address.target) as channel:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        try:
            channel.unary_unary(f"/{messages.SERVICE}/{method}")(data, timeout=30, metadata=metadata)
        except grpc.RpcError as exc:
            return exc.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x"])
def test_no_call_without_the_token(address, bystander, token):
    for method in ("Info", "Load", "Run"):
        assert raw(address, method, b"", token) == grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(BoardError, match="wrong or missing token; give the server's token with --token-file"):
        Client(Address(address.host, token)).info()


@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_refused(address, bystander, seed):
    print(f"seed {seed}")
    data = b"\xff" + np.random.default_rng(seed).bytes(1000)
    for method in ("Load", "Run"):
        assert raw(address, method, data) == grpc.StatusCode.INVALID_ARGUMENT
    with socket.create_connection(("localhost", int(address.target.rpartition(":")[2]))) as line:
        line.sendall(data)


def test_a_message_that_is_too_large_is_refused(address, bystander):
    data = messages.make("LoadRequest", program=bytes(2 << 20)).SerializeToString()
    assert raw(address, "Load", data) == grpc.StatusCode.RESOURCE_EXHAUSTED  # as one chunk
    with pytest.raises(InputError, match="a request of more than 1,114,112 bytes; at most that many are allowed"):
        Client(address).call("Load", data)
    shape = (2 << 20,)
    tensors = {"k": Tensor("k", shape, "int8", "constant", random_bytes(2 << 20).view(np.int8))}
    tensors["y"] = Tensor("y", shape, "int8", "output")
    big = Executable(TINY, "big", tensors, [HostStep("copy", "reshape", ["k"], ["y"], {"shape": [*shape]})])
    with pytest.raises(InputError, match=r"program of [\d,]+ bytes: localhost:\d+ accepts at most 1,048,576"):
        RemoteProgram(big, address)


def random_bytes(n):
    return np.random.default_rng(0).integers(0, 256, n, np.uint8)


def load(address, program):
    """The failure that the server reports for the bytes `program`."""
    client = Client(address)
    try:
        reply = messages.parse(
            "LoadReply", client.call("Load", messages.make("LoadRequest", program=program).SerializeToString())
        )
        messages.raise_failure(reply.failure)
    finally:
        client.close()


def test_programs_that_are_none(address, bystander, double):
    good = Executable.from_launch(double()).to_bytes()
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", bytes(64 << 20))
    for data in (b"", good[:-40], good[:100] + bytes(50) + good[150:], b"PK\x03\x04", bomb.getvalue()):
        with pytest.raises(FileError, match="the program: "):
            load(address, data)


def test_pickles_are_not_opened(address, bystander, double):
    archive = io.BytesIO(Executable.from_launch(double()).to_bytes())
    hostile = io.BytesIO()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(hostile, "w") as new:
        for name in old.namelist():
            data = io.BytesIO(old.read(name))
            if name.endswith(".npy"):
                data = io.BytesIO()
                np.save(data, np.array([{"a": 1}], dtype=object), allow_pickle=True)
            new.writestr(name, data.getvalue())
    with pytest.raises(FileError, match="holds object: only numbers and text are read"):
        load(address, hostile.getvalue())


def tensor(**changes):
    fields = {"name": "x", "dtype": "int32", "shape": (8, 1, 4), "data": values().tobytes(), **changes}
    return messages.make("Tensor", **fields)


@pytest.mark.parametrize(
    "inputs, text",
    [
        ([tensor(shape=(1 << 40, 1 << 40))], "needs 4835703278458516698824704 bytes, but 128 were sent"),
        ([tensor(shape=(-8, -1, 4))], "must have at most 8 dimensions, none negative"),
        ([tensor(shape=(1,) * 9)], "must have at most 8 dimensions, none negative"),
        ([tensor(data=b"")], "needs 128 bytes, but 0 were sent"),
        ([tensor(dtype="object")], "dtype 'object' must be one of int8, uint8, int16, int32, uint32, int64, float32"),
        ([tensor(), tensor()], "tensor 'x': is sent twice"),
        ([], "input 'x' is missing"),
        ([tensor(name="z")], "no input is named 'z'"),
        ([tensor(shape=(4, 1, 8))], r"shape \(4, 1, 8\) given, \(8, 1, 4\) expected"),
    ],
)
def test_lies_about_inputs_are_named(address, bystander, double, inputs, text):
    remote = RemoteProgram(Executable.from_launch(double()), address)
    request = remote._request(inputs)
    with pytest.raises(InputError, match=text):
        messages.raise_failure(remote._ask(request).failure)
    remote.close()


def rewritten(program, change):
    """The contents of the .tw file `program`, whose manifest went through `change`."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(program)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                change(manifest)
                data = json.dumps(manifest)
            new.writestr(name, data)
    return out.getvalue()


def test_a_program_that_leaves_its_buffers_is_not_run(address, bystander, double):
    def smaller(manifest):
        for entry in (manifest["tensors"][0], manifest["steps"][0]["buffers"][0]):
            entry["shape"] = [7, 1, 4]  # one entry less than it loads

    with pytest.raises(AccessError, match="ends at byte 128 of buffer 'x', which has 112") as caught:
        load(address, rewritten(Executable.from_launch(double()).to_bytes(), smaller))
    assert caught.value.index == 0


def test_a_program_of_another_configuration_is_not_sent(address, bystander, double):
    with pytest.raises(
        FingerprintError, match=rf"'double' is for vta \(.*\), {address.host} has tiny \({TINY.fingerprint:016x}"
    ):
        RemoteProgram(Executable.from_launch(double(VTA)), address)
    with pytest.raises(FingerprintError, match="the device is tiny"):
        load(address, Executable.from_launch(double(VTA)).to_bytes())


@pytest.mark.circuit
def test_a_job_that_takes_too_long_is_ended(address, bystander):
    remote = RemoteProgram(endless(), address)
    with pytest.raises(HangError, match="the job was stopped after 2 s, the time limit of one job"):
        remote.run(ENDLESS)
    remote.close()


def test_a_job_that_takes_all_memory_is_refused_alone(address, bystander):
    with (
        pytest.raises(CapacityError, match="memory"),
        RemoteProgram(hungry([1 << 15, 1 << 16, 1 << 16, 1 << 15]), address) as remote,
    ):
        remote.run({"x": np.zeros((1, 1, 1, 1), np.int8)})


@pytest.fixture
def run_endless(served, address, bystander):
    """Starts a job that takes longer than it may, and returns once it waits or runs: its call."""
    with RemoteProgram(endless(), address) as remote, grpc.insecure_channel(address.target) as channel:
        request = remote._request(messages.tensors(ENDLESS)).SerializeToString()
        call = channel.stream_unary(f"/{messages.SERVICE}/Run")

        def start():
            before = served._waiting
            running = call.future(chunks(request), metadata=(("authorization", f"Bearer {TOKEN}"),))
            wait_for(lambda: served._waiting == before + 1)
            return running

        yield start


@pytest.mark.circuit
def test_a_job_that_ends_its_process_ends_alone(served, run_endless):
    running = run_endless()
    served._worker._process.kill()
    with pytest.raises(grpc.RpcError, match="the process ended while it ran the job"):
        running.result()


def test_a_job_that_cannot_be_stopped_is_ended_with_its_process(served, run_endless):
    running, before = run_endless(), served._worker._process
    os.kill(before.pid, signal.SIGSTOP)
    running.cancel()
    wait_for(lambda: served._waiting == 0)
    assert before.exitcode == -signal.SIGKILL


@pytest.mark.circuit
def test_a_client_that_goes_away_loses_its_turn(served, run_endless):
    """It queues behind a job that takes its full time, and has disconnected before it could run."""
    first, *others = (run_endless() for _ in range(3))
    for other in others:
        other.cancel()
    wait_for(lambda: served._waiting == 1)
    assert status(first) == grpc.StatusCode.DEADLINE_EXCEEDED


def status(call):
    """How `call` ended, once it has."""
    error = call.exception()
    assert isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)
    return error.code()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.circuit
def test_a_full_queue_refuses_at_once(address, run_endless):
    with RemoteProgram(endless(), address) as remote:
        calls = [run_endless() for _ in range(4)]
        with pytest.raises(BoardError, match="4 jobs are already waiting; try later .resource_exhausted."):
            remote.run(ENDLESS)
        assert Client(address).info()[0].waiting == 4
        for one in calls[1:]:
            one.cancel()
        assert status(calls[0]) == grpc.StatusCode.DEADLINE_EXCEEDED


def test_more_programs_than_stay_placed(address, double):
    """Each is loaded again before its job, without its owner's help."""
    programs = []
    for k in range(6):
        launch = double()
        launch.name = f"double{k}"
        programs.append(RemoteProgram(Executable.from_launch(launch), address))
    for _ in range(2):
        for k, remote in enumerate(programs):
            np.testing.assert_array_equal(remote.run({"x": values(k)})["y"], 2 * values(k))
    for remote in programs:
        remote.close()


@pytest.mark.circuit
def test_a_server_that_forgot_is_sent_the_program_again(served, address, double):
    with RemoteProgram(Executable.from_launch(double()), address) as remote:
        served._programs.clear()
        served._worker.stop()
        np.testing.assert_array_equal(remote.run({"x": values()})["y"], 2 * values())


ONE = {"x": np.ones(2, np.int8)}


def counting():
    """y = x + total, total = y: a program of the host with state."""
    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30] * 3, "exponents": [0, 0, -18], "sign": 1, "shift": 20}
    tensors = [Tensor("x", (2,), "int8", "input"), Tensor("y", (2,), "int8", "output")]
    tensors.append(Tensor("total", (2,), "int8", "state", np.zeros(2, np.int8), "y"))
    step = HostStep("sum", "add", ["x", "total"], ["y"], attrs)
    return Executable(TINY, "counting", {t.name: t for t in tensors}, [step])


def test_state_belongs_to_one_client(address):
    with RemoteProgram(counting(), address) as first, RemoteProgram(counting(), address) as second:
        assert [int(first.run(ONE)["y"][0]) for _ in range(3)] == [1, 2, 3]
        assert int(second.run(ONE)["y"][0]) == 1
        assert int(first.run(ONE)["y"][0]) == 4
        first.reset()
        assert [int(each.run(ONE)["y"][0]) for each in (first, second)] == [1, 2]


def test_states_in_place_belong_to_one_client(address, cache):
    """Both clients' programs are one on the device, whose instructions are patched for each run."""
    programs = [cache(), cache()]
    first, second = (RemoteProgram(Executable.from_launch(one.launch), address) for one in programs)
    with first, second:
        for value, position in enumerate([0, 5, 15, 5]):
            for shift, remote, program in ((0, first, programs[0]), (1, second, programs[1])):
                found = remote.run(program.inputs(position - shift if position else 0, value + 9 * shift))["y"]
                expected = program.expect(position - shift if position else 0, value + 9 * shift)
                np.testing.assert_array_equal(found, expected)
        with pytest.raises(InputError, match="input 'position': value 16 given, step 'cache' was made for 0..15"):
            first.run(programs[0].inputs(16, 0))
        np.testing.assert_array_equal(first.run(programs[0].inputs(5, 1))["y"], programs[0].expect(5, 1))


def test_state_that_is_lost_is_not_made_up(served, address):
    with RemoteProgram(counting(), address) as remote:
        remote.run(ONE)
        served._worker.stop()
        with pytest.raises(BoardError, match=r"does not have this session's state after 1 runs \(after none\): it was"):
            remote.run(ONE)
        remote.reset()
        assert int(remote.run(ONE)["y"][0]) == 1


def test_it_says_what_it_offers(address):
    info, cfg = Client(address).info()
    assert (info.device, cfg) == ("model", TINY)
    assert (info.max_bytes, info.max_seconds) == (1 << 20, 2)


@pytest.mark.parametrize("config", ["", "[]", "{}x", '{"name": 3}', '{"wings": 2}'])
def test_a_server_of_another_kind(address, config, monkeypatch):
    client = Client(address)
    monkeypatch.setattr(client, "call", lambda *_: messages.make("Info", version=4, config=config).SerializeToString())
    with pytest.raises(BoardError, match="the configuration that the server sent is not valid here"):
        client.info()
    monkeypatch.setattr(client, "call", lambda *_: messages.make("Info", version=1).SerializeToString())
    with pytest.raises(BoardError, match="the server speaks protocol version 1, this client 4"):
        client.info()


def test_a_server_is_checked_up_to_a_program_that_runs_there(address):
    found = list(check_server(TINY, address))
    assert [(check.name, check.fine) for check in found] == [("server", True), ("self-test", True)]
    assert found[0].found.startswith("offers model (tiny, ") and found[1].found == "4 values are right"
    *_, last = check_server(VTA, address)
    assert (last.name, last.fine) == ("self-test", False) and "compile it for that configuration" in last.found
    (only,) = check_server(TINY, Address(address.host, "not the token, no"))
    assert not only.fine and "wrong or missing token" in only.found


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_circuit_as_the_device(double):
    pytest.importorskip("amaranth")
    program = Executable.from_launch(double())
    with (
        serving("rtl", limits=None) as running,
        RemoteProgram(program, Address(f"127.0.0.1:{running.port}", TOKEN)) as remote,
    ):
        np.testing.assert_array_equal(remote.run({"x": values()})["y"], 2 * values())
        assert remote.stats.cycles and remote.stats.counters["STORE_BYTES"] == 32


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing: no certificate can be made")
def test_tls_and_token(tmp_path, double):
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run([*command.split(), "-keyout", "key", "-out", "cert"], cwd=tmp_path, check=True, capture_output=True)
    cert, key = ((tmp_path / name).read_bytes() for name in ("cert", "key"))
    with serving(host="0.0.0.0", tls=(cert, key)) as running:
        host = f"localhost:{running.port}"
        with RemoteProgram(Executable.from_launch(double()), Address(host, TOKEN, cert)) as remote:
            np.testing.assert_array_equal(remote.run({"x": values()})["y"], 2 * values())
        with pytest.raises(BoardError, match=r"no answer; check that `tilewright serve` runs there.*\(unavailable\)"):
            Client(Address(host, TOKEN)).info()


@pytest.mark.parametrize("token, tls", [("", None), (TOKEN, None), ("", (b"c", b"k"))])
@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "board.local"])
def test_others_reach_it_only_with_token_and_tls(host, token, tls):
    with pytest.raises(ConfigError, match="other machines can reach .*: add --token-file, --tls-cert"):
        Server(Offer("model", TINY), host=host, token=token, tls=tls)


def test_an_address_that_is_taken(served):
    with pytest.raises(BoardError, match=f"cannot serve at 127.0.0.1:{served.port}"):
        Server(Offer("model", TINY), port=served.port)


def test_a_device_that_cannot_be_opened(no_pynq):
    running = Server(Offer("board", TINY), port=0, token=TOKEN)
    with pytest.raises(BoardError, match="pynq is not installed"):
        running.start()
    running.stop()


LONG = 60.0  # seconds that no test waits


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_request_is_whole_again(size):
    data, room = bytes(range(251)) * (size // 251 + 1), Room(1 << 20)
    data = data[:size]
    assert all(len(part) <= CHUNK for part in chunks(data))
    with Upload(chunks(data), room, 1 << 20, LONG, LONG) as found:
        assert found == data and room.held == size
    assert room.held == 0


def test_a_request_that_is_too_large_is_not_read_on():
    read = []

    def endless():
        while True:
            read.append(10)
            yield bytes(10)

    room = Room(1000)
    with pytest.raises(InputError, match="a request of more than 35 bytes; at most that many are allowed"):
        Upload(endless(), room, 35, LONG, LONG).__enter__()
    assert sum(read) == 40 and room.held == 0


def test_all_requests_together_have_limited_room():
    room = Room(100)
    with Upload([bytes(60)], room, 80, LONG, LONG):
        with pytest.raises(CapacityError, match="requests of 80 bytes wait, at most 100 may; try later"):
            Upload([bytes(20), bytes(30)], room, 80, LONG, LONG).__enter__()
        assert room.held == 60
        with Upload([bytes(20), bytes(20)], room, 80, LONG, LONG):
            assert room.held == room.most
    with Upload([bytes(20), bytes(30)], room, 80, LONG, LONG) as found:
        assert len(found) == 50


@pytest.fixture
def over():
    """Set when the test ends, so that what blocks does."""
    event = threading.Event()
    yield event
    event.set()


def test_silence_ends_a_request(over):
    def silent():
        yield b"four"
        over.wait(LONG)
        yield b"more"

    room = Room(100)
    with pytest.raises(HangError, match="the request brought nothing for 0.05 s, after 4 bytes"):
        Upload(silent(), room, 80, 0.05, LONG).__enter__()
    assert room.held == 0


def test_a_trickle_ends_too(over):
    def trickle():
        while not over.wait(0.01):
            yield b"."

    room = Room(1 << 20)
    with pytest.raises(HangError, match="the request was not complete after 0.2 s"):
        Upload(trickle(), room, 1 << 20, LONG, 0.2).__enter__()
    assert room.held == 0


def test_a_caller_that_is_gone():
    def broken():
        yield b"four"
        raise RuntimeError

    room = Room(100)
    with pytest.raises(BoardError, match="the call ended before its request was complete"):
        Upload(broken(), room, 80, LONG, LONG).__enter__()
    assert room.held == 0
