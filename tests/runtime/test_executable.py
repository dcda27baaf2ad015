"""The .tw file: what is written is what is read; damaged and foreign files are named."""

import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from tests.runtime.launches import rewritten
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, FileError, FingerprintError, InputError, ProgramError, UnsupportedError
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.program import Program

TINY = PRESETS["tiny"]


def add_constant(value=5, cfg=TINY):
    program = Program(cfg, "add")
    shape = (4, cfg.batch, cfg.block_out)
    a, out = program.buffer("a", shape, 32), program.buffer("out", shape, kind="output")
    program.load(Mem.ACC, 0, a, 0, x_size=4)
    program.alu(AluOp.ADD, [(4, 1, 1)], imm=value)
    program.store(0, out, 0, x_size=4)
    return program.finish()


TABLE = np.arange(256).astype(np.int8)


def three_steps():
    launch = add_constant()
    tensors = [
        Tensor("x", (4, 1, 4), "int32", "input"),
        Tensor("y", (4, 1, 4), "int8"),
        Tensor("f", (16,), "int8"),
        Tensor("z", (16,), "int8", "output"),
        Tensor("k", (2,), "float32", "constant", np.array([0.5, 2], np.float32)),
    ]
    steps = [
        LaunchStep("add", launch, {"a": "x", "out": "y"}, macs=7),
        HostStep("flat", "reshape", ["y"], ["f"], {"shape": [16]}),
        HostStep("function", "lookup", ["f"], ["z"], {}, {"table": TABLE}),
    ]
    return Executable(TINY, "net", {t.name: t for t in tensors}, steps)


def test_save_and_load_give_the_same_program(tmp_path):
    before = three_steps()
    before.save(tmp_path / "x.tw")
    with zipfile.ZipFile(tmp_path / "x.tw") as z:
        manifest = json.loads(z.read("manifest.json"))
    assert manifest["fingerprint"] == f"{TINY.fingerprint:016x}"
    assert manifest["memory"]["x"] == {"nbytes": 64, "align": 64}
    after = Executable.load(tmp_path / "x.tw")
    assert after.cfg == before.cfg and after.name == before.name and after.memory_plan() == before.memory_plan()
    for old, new in zip(before.tensors.values(), after.tensors.values()):
        assert (old.name, old.shape, old.dtype, old.kind) == (new.name, new.shape, new.dtype, new.kind)
    launch, host, function = after.steps
    assert isinstance(launch, LaunchStep) and isinstance(host, HostStep) and isinstance(function, HostStep)
    old = before.steps[0]
    assert isinstance(old, LaunchStep)
    np.testing.assert_array_equal(launch.launch.insn, old.launch.insn)
    np.testing.assert_array_equal(launch.launch.reloc, old.launch.reloc)
    np.testing.assert_array_equal(launch.launch.uops, old.launch.uops)
    assert (launch.bind, launch.macs) == (old.bind, 7)
    assert (host.op, host.inputs, host.outputs, host.attrs) == ("reshape", ["y"], ["f"], {"shape": [16]})
    np.testing.assert_array_equal(function.constants["table"], TABLE)
    np.testing.assert_array_equal(after.tensors["k"].data, before.tensors["k"].data)


def test_reading_takes_the_memory_of_the_file_not_of_the_limit(tmp_path):
    path = tmp_path / "x.tw"
    three_steps().save(path)
    tracemalloc.start()
    Executable.load(path, most=1 << 40)  # which no machine could set aside
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.tw"
    path.write_text("old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="No space left on device"):
        three_steps().save(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def _tensors(*specs):
    zeros = {"constant": np.zeros}
    return {name: Tensor(name, shape, dtype, kind, zeros.get(kind, lambda *_: None)(shape, dtype))
            for name, shape, dtype, kind in specs}  # fmt: skip


GOOD = (("x", (4, 1, 4), "int32", "input"), ("y", (4, 1, 4), "int8", "output"))
Y = ("y", (4, 1, 4), "int8", "output")
BOUND = {"a": "x", "out": "y"}


@pytest.mark.parametrize(
    "tensors, bind, cfg, error, text",
    [
        (GOOD, {"a": "x", "out": "nope"}, TINY, ProgramError, "step 'add' names tensor 'nope', which is not declared"),
        (GOOD, {"b": "x"}, TINY, ProgramError, "binds buffer 'b', which its launch does not have"),
        (GOOD, {"a": "y"}, TINY, ProgramError, "buffer 'a' is 32-bit (4, 1, 4), tensor 'y' is int8 (4, 1, 4)"),
        ([("x", (3, 1, 4), "int32", "input")], {"a": "x"}, TINY, ProgramError, "tensor 'x' is int32 (3, 1, 4)"),
        (GOOD, {"out": "y"}, TINY, ProgramError, "step 'add': no tensor is bound to its input buffer 'a'"),
        ([("x", (4, 1, 4), "int32", "temp"), Y], BOUND, TINY, ProgramError,
         "step 'add' reads tensor 'x' before any step wrote it"),
        (GOOD, None, TINY, ProgramError, "no step writes output 'y'"),
        ([GOOD[0], (*Y[:3], "input")], BOUND, TINY, ProgramError,
         "step 'add' writes tensor 'y', which is input; only output and temp"),
        ([GOOD[0], (*Y[:3], "constant")], BOUND, TINY, ProgramError, "step 'add' writes tensor 'y', which is constant"),
        (GOOD, BOUND, PRESETS["vta"], FingerprintError,
         f"step 'add' is for tiny ({TINY.fingerprint:016x}), the program for vta"),
    ],
)  # fmt: skip
def test_bindings_that_do_not_fit(tensors, bind, cfg, error, text):
    with pytest.raises(error) as caught:
        Executable(cfg, "net", _tensors(*tensors), [LaunchStep("add", add_constant(), bind)] if bind else [])
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"op": "teleport"}, UnsupportedError, "host operator 'teleport' is unknown; known are accumulators"),
        ({"attrs": {}}, ProgramError, "host operator 'reshape': shape is missing: must be a list"),
        ({"attrs": {"shape": [2.0, 8]}}, ProgramError, "host operator 'reshape': shape = [2.0, 8]: must be a"),
        ({"attrs": {"shape": [2, 8]}}, ProgramError,
         "host operator 'reshape': output 'y' is int8 (16,), its result int8 (2, 8)"),
        ({"attrs": {"shape": [1 << 20]}}, ProgramError, "host operator 'reshape': shape = (1048576,) has not as many"),
        ({"constants": {"shape": np.zeros(1)}}, ProgramError,
         "host operator 'reshape': 'shape' is an attribute and a constant"),
        ({"inputs": ["x", "x"]}, ProgramError, "host operator 'reshape': 2 inputs: must be 1"),
        ({"outputs": ["y", "y"]}, ProgramError, "host operator 'reshape': 2 outputs: must be 1"),
        ({"outputs": []}, ProgramError, "host operator 'reshape': 0 outputs: must be 1"),
    ],
)  # fmt: skip
def test_host_steps_that_do_not_comply(change, error, text):
    step = {"name": "s", "op": "reshape", "inputs": ["x"], "outputs": ["y"], "attrs": {"shape": [16]}}
    tensors = _tensors(("x", (4, 4), "int8", "input"), ("y", (16,), "int8", "output"))
    Executable(TINY, "net", tensors, [HostStep(**step)])
    with pytest.raises(error) as caught:
        Executable(TINY, "net", tensors, [HostStep(**{**step, **change})])
    assert str(caught.value).startswith(f"step 's': {text}")


def narrow():
    """A launch that stores 16 of 256 bytes."""
    program = Program(TINY, "narrow")
    y = program.buffer("y", (256,), kind="output")
    program.alu(AluOp.ADD, [(4, 1, 1)], imm=1)
    program.store(0, y, 0, x_size=4)
    return program.finish()


def test_buffers_of_a_tensor_have_elements_of_one_width():
    """Otherwise the larger of them would reach beyond the memory that the smaller one was given."""
    tensors = _tensors(("t", (256,), "int8", "output"))
    wide, small = (narrow() for _ in range(2))
    small.buffers[0].bits = 2
    small.insn[:, 1] &= ~np.uint64(0xFFFF0000)  # x_size 0: it stores nothing
    steps: list[LaunchStep | HostStep] = [LaunchStep("wide", wide, {"y": "t"}), LaunchStep("small", small, {"y": "t"})]
    for order, text in (
        (
            steps,
            "step 'small': tensor 't' has 2-bit elements in buffer 'y', 8-bit ones in step 'wide'; they",
        ),
        (steps[::-1], "step 'wide': tensor 't' has 8-bit elements in buffer 'y', 2-bit ones in step 'small'"),
    ):
        with pytest.raises(ProgramError) as caught:
            Executable(TINY, "net", tensors, order)
        assert text in str(caught.value)
    Executable(TINY, "net", tensors, steps[:1])


@pytest.mark.parametrize("kind", ["temp", "constant"])
def test_only_inputs_and_outputs_are_bound(kind):
    launch = narrow()
    launch.buffers[0].kind = kind
    with pytest.raises(ProgramError, match=f"step 's' binds buffer 'y', which is {kind}; only input and output"):
        Executable(TINY, "net", _tensors(("t", (256,), "int8", "output")), [LaunchStep("s", launch, {"y": "t"})])


def test_regions_hold_the_largest_of_their_buffers():
    net = Executable(TINY, "net", _tensors(("t", (256,), "int8", "output")), [LaunchStep("s", narrow(), {"y": "t"})])
    launch = narrow()
    launch.buffers[0].bits = 2
    net.steps.append(LaunchStep("later", launch, {"y": "t"}))
    assert net.memory_plan()["t"].nbytes == 256


def test_buffers_of_a_tensor_have_a_place_together():
    first, second = narrow(), narrow()
    first.buffers[0].align, second.buffers[0].align = 1 << 24, 12
    steps: list[LaunchStep | HostStep] = [LaunchStep("a", first, {"y": "t"}), LaunchStep("b", second, {"y": "t"})]
    with pytest.raises(ProgramError, match="'t': its buffers need an address that is a multiple of 50331648"):
        Executable(TINY, "net", _tensors(("t", (256,), "int8", "output")), steps)


def test_a_launch_that_leaves_its_buffers(tmp_path):
    """Whoever makes or loads a program finds it: `verify`, `run`, a server and a board alike."""
    path = tmp_path / "x.tw"
    three_steps().save(path)
    launch = add_constant()
    launch.buffers[0].shape = (3, 1, 4)
    with pytest.raises(AccessError, match="ends at byte 64 of buffer 'a', which has 48") as caught:
        Executable.from_launch(launch)
    assert caught.value.index == 0

    def smaller(m):
        m["tensors"][0]["shape"] = m["steps"][0]["buffers"][0]["shape"] = [3, 1, 4]

    path.write_bytes(rewritten(path.read_bytes(), smaller))
    with pytest.raises(AccessError, match=r"x\.tw: launch .* ends at byte 64 of buffer 'a', which has 48") as caught:
        Executable.load(path)
    assert caught.value.index == 0


def test_it_shows_its_steps_and_what_goes_in_and_out():
    program = three_steps()
    assert repr(program) == "Executable('net', tiny, 3 steps, 1 on the device: x int32 (4, 1, 4) -> z int8 (16,))"
    text = program._repr_html_()
    assert "<td>add</td><td>device</td><td>7</td><td>5</td>" in text and "<td>host, lookup</td>" in text
    out = Tensor("out", (4, 1, 4), "int8", "output")
    tensors = {"a": Tensor("a", (4, 1, 4), "int32", "constant", np.zeros((4, 1, 4), np.int32)), "out": out}
    step = LaunchStep("add", add_constant(), {"a": "a", "out": "out"})
    assert "no inputs -> out int8 (4, 1, 4)" in repr(Executable(TINY, "constant", tensors, [step]))


def test_it_runs_on_arrays_by_name_or_on_its_only_input():
    program, x = three_steps(), np.arange(16, dtype=np.int32).reshape(4, 1, 4)
    expected = np.arange(5, 21) - 128  # of TABLE, which begins at -128
    outputs, stats = program.run({"x": x})
    assert np.array_equal(outputs["z"], expected) and stats.cycles is None
    assert np.array_equal(program(x)["z"], outputs["z"])
    outputs, stats = program.run(x, on="timing")
    assert np.array_equal(outputs["z"], expected) and (stats.cycles or 0) > 100


def test_one_array_for_several_inputs_asks_for_names():
    tensors = {name: Tensor(name, (2,), "int8", "input") for name in "ab"}
    tensors["c"] = Tensor("c", (2,), "int8", "output")
    program = Executable(TINY, "two", tensors, [HostStep("c", "reshape", ["a"], ["c"], {"shape": [2]})])
    with pytest.raises(InputError, match="one array given; 'two' has the inputs a, b: name them"):
        program.run(np.zeros(2, np.int8))


@pytest.mark.parametrize(
    "args, text",
    [
        (((2,), "int4"), "dtype 'int4' must be one of int8, uint8, int16, int32, uint32, int64, float32, bool"),
        (((2.5,), "int8"), "shape (2.5,): must be integers"),
        (((2, 0), "int8"), "shape (2, 0): every dimension must be at least 1"),
        (((1 << 20, 1 << 20), "int32"), "4,398,046,511,104 bytes; at most 1,099,511,627,776 are allowed"),
        (((2,), "int8", "scratch"), "kind 'scratch' must be one of input, output, constant, temp, state"),
        (((2,), "int8", "constant"), "kind 'constant' needs data"),
        (((2,), "int8", "input", np.zeros(2, np.int8)), "takes no data; only constant and state tensors do"),
        (((2,), "int8", "state", None, "y"), "kind 'state' needs data"),
        (((2,), "int8", "state", np.zeros(2, np.int8)), "kind 'state' needs next, the tensor whose values it takes"),
        (((2,), "int8", "temp", None, "y"), "kind 'temp' takes no next"),
        (((2,), "int8", "constant", np.zeros(3, np.int8)), r"data is int8 (3,), must be int8 (2,)"),
    ],
)
def test_impossible_tensors(args, text):
    with pytest.raises(ProgramError) as caught:
        Tensor("t", *args)
    assert text in str(caught.value)
