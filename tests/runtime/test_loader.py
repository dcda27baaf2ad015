"""Placement and replay: constants once, inputs every time, mistakes before the device is touched."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import (
    CapacityError,
    EncodingError,
    FingerprintError,
    InputError,
    ProgramError,
    UnsupportedError,
)
from tilewright.hw.isa import AluOp, Mem, Queue
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.layout import pack_par
from tilewright.runtime.loader import Loaded, checked_input, run
from tilewright.runtime.program import Program
from tilewright.sim.memory import PAGE
from tilewright.sim.model.device import ModelDevice

VTA, PYNQ = PRESETS["vta"], PRESETS["pynq_z1"]


def multiply(name="mul"):
    """y = x @ w.T for one entry, int8 wrapped."""
    program = Program(VTA, name)
    x, w = program.buffer("x", (1, 1, 16)), program.buffer("w", (1, 16, 16))
    y = program.buffer("y", (1, 1, 16), kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.load(Mem.WGT, 0, w, 0)
    program.gemm([], reset=True)
    program.gemm([])
    program.store(0, y, 0)
    return program.finish()


def chained(weights):
    """Two launches with constant weights; the second reads on the device what the first wrote there."""
    tensors = {n: Tensor(n, (1, 1, 16), "int8", k) for n, k in (("in", "input"), ("mid", "temp"), ("out", "output"))}
    for k, w in enumerate(weights):
        tensors[f"w{k}"] = Tensor(f"w{k}", (1, 16, 16), "int8", "constant", w)
    steps: list[LaunchStep | HostStep] = [
        LaunchStep("first", multiply(), {"x": "in", "w": "w0", "y": "mid"}),
        LaunchStep("second", multiply(), {"x": "mid", "w": "w1", "y": "out"}),
    ]
    return Executable(VTA, "chain", tensors, steps)


def wrap8(x):
    return (x + 128) % 256 - 128


def test_replay_with_new_inputs():
    rng = np.random.default_rng(4)
    weights = rng.integers(-5, 5, (2, 1, 16, 16)).astype(np.int8)
    device = open_device("model", VTA)
    with Loaded(chained(weights), device) as loaded:
        for _ in range(3):
            x = rng.integers(-128, 128, (1, 1, 16)).astype(np.int8)
            want = wrap8(wrap8(x.astype(int)[0] @ weights[0, 0].T) @ weights[1, 0].T)
            np.testing.assert_array_equal(loaded.run({"in": x})["out"][0], want)
        assert [r.where for r in loaded.reports] == ["device", "device"]
        assert loaded.stats.macs == 2 * 256


class Foreign:
    """An array of another library: no `__array__`, only DLPack."""

    def __init__(self, array, error=None):
        self._array, self._error = array, error

    def __dlpack__(self, **options):
        if self._error:
            raise self._error
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


X, W = np.zeros((1, 1, 16), np.int8), np.zeros((1, 16, 16), np.int8)
FAR = BufferError("it is on the GPU " + 40 * "far away ")


@pytest.mark.parametrize(
    "inputs, text",
    [
        ({"x": X}, "input 'w' is missing; inputs are x, w"),
        ({"x": X, "w": W, "v": X}, "no input is named 'v'; inputs are x, w"),
        ({"x": X[0, 0], "w": W}, "input 'x': shape (16,) given, (1, 1, 16) expected"),
        ({"x": Foreign(X[0, 0]), "w": W}, "input 'x': shape (16,) given, (1, 1, 16) expected"),
        ({"x": X.astype(float), "w": W}, "input 'x': dtype float64 given, int8 expected"),
        ({"x": [[1, 2], [3]], "w": W}, "input 'x': is no array of shape (1, 1, 16) (setting an array element with a"),
        ({"x": np.full((1, 1, 16), 200), "w": W}, "input 'x': values 200..200 do not fit int8"),
        ({"x": Foreign(X, FAR), "w": W}, "input 'x': numpy cannot read this Foreign (it is on the GPU"),
        ({"x": Foreign(X, TypeError("bfloat16")), "w": W},
         "input 'x': numpy cannot read this Foreign (bfloat16); copy it to the CPU, as int8"),
    ],
)  # fmt: skip
def test_input_mistakes(inputs, text):
    with pytest.raises(InputError) as caught:
        run(multiply(), inputs)
    assert text in str(caught.value) and len(str(caught.value)) < 300


def test_integers_are_float32_where_it_has_them():
    tensor = Tensor("x", (2,), "float32", "input")
    assert checked_input(tensor, np.array([-5, 1 << 24])).dtype == np.float32
    with pytest.raises(InputError, match="dtype int64 given, float32 expected"):
        checked_input(tensor, np.array([0, (1 << 24) + 1]))


def host_program(op, size, attrs):
    """y = op(x) on the host."""
    tensors = {n: Tensor(n, size, "int8", k) for n, k in (("x", "input"), ("y", "output"))}
    return Executable(VTA, "net", tensors, [HostStep("s", op, ["x"], ["y"], attrs)])


HUGE = host_program("transpose", (1 << 20, 1 << 20), {"axes": [1, 0]})
NO_PROGRAM: Any = "x.tw"


@pytest.mark.parametrize(
    "program, device, error, text",
    [
        (multiply(), "fpga", UnsupportedError, "unknown device 'fpga'; known are .*model"),
        (multiply(), ModelDevice(PRESETS["tiny"]), FingerprintError,
         r"'mul' is for vta \(fingerprint \w+\), the device is tiny \(\w+\)"),
        (NO_PROGRAM, "model", InputError, r"a Program or its launch, not str; load\(path\) opens a file"),
        (NO_PROGRAM, ModelDevice(VTA), InputError, r"a Program or its launch, not str; load\(path\) opens a file"),
        (HUGE, "model", CapacityError, "tensors of program 'net' have 2,199,023,255,552 bytes, this machine"),
    ],
)  # fmt: skip
def test_programs_and_devices_that_do_not_fit(program, device, error, text):
    with pytest.raises(error, match=text):
        run(program, {"x": X, "w": W}, device)


def test_a_host_step_that_needs_more_memory_than_there_is(monkeypatch):
    def full(*args, **kwargs):
        raise MemoryError("Unable to allocate 3 GiB")

    program = host_program("reshape", (4,), {"shape": [4]})
    monkeypatch.setitem(HOST_OPS, "reshape", replace(HOST_OPS["reshape"], function=full))
    with pytest.raises(CapacityError, match="step 's': host operator 'reshape' needs more memory .Unable to allocate"):
        run(program, {"x": np.zeros(4, np.int8)})


def test_a_program_too_large_is_refused_before_anything_is_placed():
    room = ModelDevice(VTA, capacity=PAGE + 300)
    with pytest.raises(
        CapacityError, match=r"needs [\d,]+ bytes of device memory, but only 300 are free; its largest regions: w 256"
    ):
        Loaded(multiply(), room)
    assert not room._used
    device = ModelDevice(VTA, capacity=PAGE + 1000)
    for _ in range(2):  # closing gives the memory back
        Loaded(multiply(), device).close()


def halves(par):
    """y = clamp((x + bias) / 2 + zero point, low, high) with the constant parameters `par` of 20 channels."""
    program = Program(PYNQ, "halves")
    x = program.buffer("x", (2, 1, 16), 32)
    p = program.buffer("p", par.shape, 32, signed=False, kind="constant", data=par.view(np.uint8).reshape(-1))
    y = program.buffer("y", (2, 1, 16), kind="output")
    program.load(Mem.PAR, 3, p, 0, x_size=2)
    program.load(Mem.ACC, 0, x, 0, x_size=2)
    program.store(0, y, 0, y_size=2, par=3, par_step=1)
    return program.finish()


def test_parameters_travel_with_the_program(tmp_path):
    """Entries of 192 bytes: aligned to that wherever they lie, in a file as in memory."""
    bias = np.arange(20) * 3 - 30
    limits = {"low": -100, "high": np.arange(20) + 80}
    rounding = {"multiplier": 1 << 30, "exponent": 0, "contract": "double"}
    par = pack_par(PYNQ, bias=bias, zero_point=-7, **limits, **rounding)
    launch = halves(par)
    assert {b.name: b.align for b in launch.buffers} == {"x": 64, "p": 192, "y": 64}
    Executable.from_launch(launch).save(tmp_path / "halves.tw")
    x = np.random.default_rng(2).integers(-300, 300, (2, 1, 16))
    expected = np.clip((x.reshape(-1)[:20] + bias + 1) // 2 - 7, -100, limits["high"])
    device = open_device("model", PYNQ)
    device.allocate(100, 1)  # what follows is not aligned by chance
    for program in (launch, Executable.load(tmp_path / "halves.tw")):
        with Loaded(program, device) as loaded:
            got = loaded.run({"x": x})["y"].reshape(-1)
        np.testing.assert_array_equal(got[:20], expected)
        assert not got[20:].any()  # channels that only fill the group


def loads(before, loads, after):
    """`before` additions, then loads that give a token each, which compute takes behind `after` of them."""
    program = Program(VTA, "many", tokens="explicit")
    x = program.buffer("x", (1, 1, 16))
    if before:
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
    for _ in range(before):
        program.alu(AluOp.ADD, [], imm=1)
    for _ in range(loads):
        program.load(Mem.INP, 0, x, 0)
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
    for _ in range(after):
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
    return program.finish()


@pytest.mark.parametrize(
    "launch, depths, text",
    [
        (loads(0, 5, 5), {"token_depth": 5},  # and one token for FINISH
         r"queue_depth 64, token_depth 1023\), the device is shallow \(64 and 5\); .*6 tokens LOAD -> COMPUTE can be"),
        (loads(0, 5, 5), {"queue_depth": 4, "token_depth": 1}, r"the device is shallow \(4 and 1\)"),
        # compute waits for the last load, behind more instructions of its own than the queue holds
        (loads(9, 1, 0), {"queue_depth": 4}, r"\(4 and 1023\).*deadlock.*queue COMPUTE, which holds 4"),
        (loads(0, 5, 5), {"token_depth": 6}, None),
        (loads(9, 1, 0), {}, None),
        (multiply(), {"queue_depth": 4, "token_depth": 2}, None),
    ],
)  # fmt: skip
def test_what_was_proved_for_deeper_queues_is_proved_again(launch, depths, text):
    shallow = ModelDevice(VTA.replace(name="shallow", **depths))
    if text is None:
        Loaded(launch, shallow).close()
        return
    with pytest.raises(FingerprintError, match=rf"step 'many' is for vta \(.*{text}"):
        Loaded(launch, shallow)
    assert not shallow.read(0, len(shallow.bytes)).any()


def test_inputs_come_by_dlpack():
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((1, 1, 16), (1, 16, 16)))
    expected = wrap8(x[0].astype(int) @ w[0].T.astype(int))
    outputs, _ = run(multiply(), {"x": Foreign(x), "w": Foreign(w.astype(np.int64))})
    assert np.array_equal(outputs["y"][0], expected)
    tvm = pytest.importorskip("tvm")
    outputs, _ = run(multiply(), {"x": tvm.runtime.tensor(x), "w": w})
    assert np.array_equal(outputs["y"][0], expected)


def carried(binds):
    """y = x @ w.T, and the state s takes it; with `binds` the launch reads the state, else the host adds it after."""
    w = Tensor("w", (1, 16, 16), "int8", "constant", np.eye(16, dtype=np.int8)[None] * 2)
    tensors = [Tensor(n, (1, 1, 16), "int8", k) for n, k in (("x", "input"), ("m", "temp"), ("y", "output"))]
    tensors += [w, Tensor("s", (1, 1, 16), "int8", "state", np.full((1, 1, 16), 3, np.int8), "m" if binds else "y")]
    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30] * 3, "exponents": [0, 0, -18], "sign": 1, "shift": 20}
    other = "x" if binds else "s"
    steps: list[LaunchStep | HostStep] = [
        LaunchStep("twice", multiply(), {"x": "s" if binds else "x", "w": "w", "y": "m"}),
        HostStep("sum", "add", ["m", other], ["y"], attrs),
    ]
    return Executable(VTA, "carried", {t.name: t for t in tensors}, steps)


@pytest.mark.parametrize("binds", [True, False])
def test_state_lasts_from_run_to_run(binds):
    """Where the launch reads and writes the state's values, they stay on the device; else on the host."""
    xs, state, expected = [1, 5, -7, 2], 3, []
    for x in xs:
        twice = wrap8(2 * (state if binds else x))
        expected.append(twice + (x if binds else state))
        state = twice if binds else expected[-1]
    executable = carried(binds)
    with Loaded(executable, open_device("model", VTA)) as loaded:
        for _ in range(2):
            found = [int(loaded.run({"x": np.full((1, 1, 16), x, np.int8)})["y"].flat[0]) for x in xs]
            assert found == expected
            loaded.reset()
    assert executable({"x": np.full((1, 1, 16), 1, np.int8)})["y"].flat[0] == expected[0]
    assert "16 bytes of state" in repr(executable)


def raising(*args):
    raise EncodingError("no")


@pytest.mark.parametrize("binds", [True, False])
def test_state_is_read_and_assigned_and_left_by_a_run_that_fails(binds, monkeypatch):
    with Loaded(carried(binds), open_device("model", VTA)) as loaded:
        assert loaded.state["s"].flat[0] == 3
        loaded.run({"x": X})
        kept = loaded.state
        assert kept["s"].flat[0] == (6 if binds else 3)
        with monkeypatch.context() as patch, pytest.raises(EncodingError):
            patch.setattr(loaded.device, "run", raising)
            loaded.run({"x": X})
        expected = loaded.run({"x": X})["y"]
        loaded.state = kept
        np.testing.assert_array_equal(loaded.run({"x": X})["y"], expected)
        for wrong, text in (
            ({}, "state 's' is missing; states are s"),
            ({"t": 1}, "no state is named 't'"),
            ({"s": np.zeros(3, np.int8)}, "state 's': shape"),
        ):
            with pytest.raises(InputError, match=text):
                loaded.state = wrong


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_cache_is_written_in_place_where_nothing_else_reads_it(elsewhere):
    cache = Tensor("cache", (3, 2), "int16", "state", np.zeros((3, 2), np.int16), "after")
    tensors = [cache, Tensor("row", (1, 2), "int16", "input"), Tensor("at", (1,), "int32", "input")]
    tensors += [Tensor("after", (3, 2), "int16"), *(Tensor(n, (6,), "int16", "output") for n in ("y", "old"))]
    read = {"y": "after", "old": "cache" if elsewhere else "after"}
    steps: list[LaunchStep | HostStep] = [
        HostStep("write", "write_tokens", ["cache", "row", "at"], ["after"], {"start": 0}),
        *(HostStep(n, "reshape", [x], [n], {"shape": [6]}) for n, x in read.items()),
    ]
    program, expected = Executable(VTA, "kept", {t.name: t for t in tensors}, steps), np.zeros((3, 2))
    with Loaded(program, open_device("model", VTA)) as loaded:
        arrays, results = [], []
        for at, value in ((1, 5), (0, -7), (1, 9)):
            before = expected.copy()
            expected[at] = value
            found = loaded.run({"row": np.full((1, 2), value, np.int16), "at": np.array([at], np.int32)})
            results.append((found, {"y": expected.flatten(), "old": (before if elsewhere else expected).flatten()}))
            arrays.append(loaded._kept["cache"])
            results.append((loaded.state, {"cache": expected.copy()}))
        assert (arrays[0] is arrays[2]) != elsewhere
        loaded.reset()
        results.append((loaded.state, {"cache": np.zeros((3, 2))}))
    for found, wanted in results:  # what a run or `state` gave stays
        assert all(np.array_equal(found[name], values) for name, values in wanted.items())


def test_states_that_exchange_their_values():
    """Every state takes what the others were, not what they become."""
    a, b = (Tensor(n, (2,), "int8", "state", np.full(2, v, np.int8), o) for n, v, o in (("a", 1, "b"), ("b", 2, "a")))
    tensors = [a, b, Tensor("y", (2,), "int8", "output")]
    step = HostStep("copy", "reshape", ["a"], ["y"], {"shape": [2]})
    with Loaded(Executable(VTA, "swap", {t.name: t for t in tensors}, [step]), open_device("model", VTA)) as loaded:
        assert [int(loaded.run({})["y"][0]) for _ in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "other, text",
    [
        (Tensor("m", (2,), "int8"), "takes the values of 'm', which no step writes"),
        (Tensor("m", (3,), "int8", "input"), r"takes the values of 'm', which is int8 \(3,\); it must be int8 \(2,\)"),
    ],
)
def test_a_state_must_get_values_that_fit(other, text):
    s, y = Tensor("s", (2,), "int8", "state", np.zeros(2, np.int8), "m"), Tensor("y", (2,), "int8", "output")
    step = HostStep("copy", "reshape", ["s"], ["y"], {"shape": [2]})
    with pytest.raises(ProgramError, match=text):
        Executable(VTA, "p", {t.name: t for t in (s, other, y)}, [step])
