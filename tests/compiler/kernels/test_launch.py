"""A launch of several operators: its arena, what it brings and fetches, its states, and what it costs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.kernels.conftest import PLUS
from tests.compiler.kernels.operators import POSITION
from tilewright.compiler import cost
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.launch import (
    arena_plan,
    members,
    refused_states,
    state_of,
)  # fmt: skip
from tilewright.compiler.accelerator.layerwise import LayerAccelerator
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels.table import cycles, overlap, refusal
from tilewright.compiler.network import compile_for, compile_graph, launch_cycles
from tilewright.compiler.target.module import Refusal
from tilewright.compiler.target.steps import Steps
from tilewright.hw.config import PRESETS, Config, load_config
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import HostStep
from tilewright.runtime.loader import Loaded, run

CFG = PRESETS["pynq_z1"]
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
X = g.Tensor("x", (1, 16, 6, 6), scale=0.1, zero_point=3)


# the arena


def test_the_arena_holds_what_stays_inside_and_sums_take_the_place_of_an_operand(like, conv):
    a, b, c, y = (like(name) for name in "abcy")
    ops = (
        conv(1, y=a, name="one"),
        conv(1, x=a, y=b, name="two"),
        g.Add("sum", (a, b), c),
        conv(1, x=c, y=y, name="last"),
    )
    graph = g.Graph("g", (X,), (y,), ops)
    plan = arena_plan(graph, ops, CFG)
    assert sorted(plan.addresses) == ["a", "b", "c"]
    assert plan.nbytes == plan.bound == 2 * 36 * 16
    executable = compile_graph(graph, CFG)
    (step,) = executable.launches
    (arena,) = (buffer for buffer in step.launch.buffers if buffer.name == "arena")
    assert arena.nbytes == plan.nbytes
    x = np.random.default_rng(0).integers(-128, 128, X.shape).astype(np.int8)
    with Loaded(executable, open_device("model", CFG)) as loaded:
        for _ in range(2):  # the arena holds the last run's values
            assert np.array_equal(loaded.run({"x": x})["y"], reference.trace(graph, {"x": x})["y"])


@pytest.fixture
def concatenation(like, conv):
    """Two convolutions and the input, one after the other; the first is read again."""
    a, b, wide, again, y = like("a"), like("b"), like("wide", 1, 48, 6, 6), like("again"), like("y", 1, 64, 6, 6)
    ops = (
        conv(1, y=a, name="one"),
        conv(1, x=a, y=b, name="two"),
        g.Concat("inner", (a, b, X), wide, 1),
        conv(1, x=b, y=again, name="three"),
        g.Concat("outer", (wide, again), y, 1),
    )
    return g.Graph("g", (X,), (y,), ops)


def test_operators_compute_in_their_place_of_a_concatenation(concatenation, exact_graph):
    graph = concatenation
    found = {name: (op.name, channel) for name, (op, channel) in members(graph, graph.ops, CFG).items()}
    assert found == {"a": ("inner", 0), "b": ("inner", 16), "wide": ("outer", 0), "again": ("outer", 48)}
    assert not arena_plan(graph, graph.ops, CFG).buffers  # all of it lies in the output
    exact_graph(graph)


def test_of_a_concatenation_inside_the_arena_the_whole_lives_from_its_first_part_on(like, conv, concatenation):
    graph = concatenation
    last = conv(1, x=like("sum"), y=like("last"), name="last")
    total = g.Add("add", (like("again"), like("a")), like("sum"))
    wide = g.Requantize("narrow", (like("y", 1, 64, 6, 6),), like("z", 1, 64, 6, 6))
    graph = g.Graph("g", (X,), (like("last"), like("z", 1, 64, 6, 6)), (*graph.ops, total, last, wide))
    (whole,) = (b for b in arena_plan(graph, graph.ops, CFG).buffers if b.name == "y")
    assert (whole.first, whole.last, whole.nbytes) == (0, 7, 64 * 36)


def test_channels_are_added_where_the_tensor_lies(exact, conv, like):
    narrow, wide = like("narrow", 1, 24, 6, 6), like("wide", 1, 40, 6, 6)
    first, pads = conv(1, 24, y=narrow, name="first"), ((0, 0), (0, 16), (0, 0), (0, 0))
    pad = g.Pad("pad", (narrow,), wide, pads, -7)
    again = g.Requantize("again", (narrow,), like("again", 1, 24, 6, 6))
    other = g.Pad("other", (again.output,), like("other", 1, 40, 6, 6), pads, 8)
    last = g.Maximum("last", (wide, other.output), like("y", 1, 40, 6, 6))
    graph = g.Graph("g", (X,), (last.output,), (first, pad, again, other, last))
    assert members(graph, graph.ops, CFG) == {"narrow": (pad, 0), "again": (other, 0)}
    exact(*graph.ops)


def test_parts_follow_where_the_first_one_lies(exact, conv, like):
    parts = like("a", 1, 24, 6, 6), like("b", 1, 4, 6, 6)
    ops = [conv(1, t.shape[1], y=t, name=f"conv {t.name}") for t in parts]
    joined = g.Concat("join", (*parts, parts[0]), like("y", 1, 52, 6, 6), 1)
    graph = g.Graph("g", (X,), (joined.output,), (*ops, joined))
    assert members(graph, graph.ops, CFG) == {"a": (joined, 0)}
    exact(*graph.ops)


# what is brought and fetched


def test_an_input_is_brought_in_every_form_that_is_read(like, exact_graph):
    image = g.Tensor("x", (1, 3, 8, 8), scale=0.1, zero_point=3)
    weight = np.ones((3, 3, 3, 3), np.int8)
    parameters = np.full(3, 0.01, np.float32), np.zeros(3, np.int32)
    a, y = like("a", *image.shape), like("y", *image.shape)
    ops = (
        g.QConv2d("conv", (image,), a, weight, *parameters, pads=(1, 1, 1, 1)),
        g.Add("sum", (image, a), y),
    )
    graph = g.Graph("g", (image,), (y,), ops)
    executable = exact_graph(graph, refused={"host": {"sum": "the test wants the accelerator"}}).executable
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_windows", "pack", "unpack"]


def test_tensors_may_have_the_names_of_buffers(exact, like):
    image, other = g.Tensor("uop", (1, 3, 8, 8), scale=0.1), like("conv.w", 1, 3, 8, 8)
    parameters = np.full(3, 0.01, np.float32), np.zeros(3, np.int32)
    a, b, y = like("arena", *other.shape), like("sum", *other.shape), like("conv.x", *other.shape)
    exact(
        g.QConv2d("conv", (image,), a, np.ones((3, 3, 3, 3), np.int8), *parameters, pads=(1, 1, 1, 1)),
        g.Add("add", (a, other), b),
        g.Add("last", (b, image), y),
    )


def test_a_concatenation_of_a_few_channels_is_exact(exact, like):
    narrow = like("narrow", 1, 5, 6, 6)
    exact(g.Concat("op", (X, X, narrow), like("y", 1, 37, 6, 6), 1))


def test_a_view_of_an_input_is_one_on_the_host(like):
    x, flat, y = like("x", 1, 64, 1, 1), like("f", 1, 64), like("y", 1, 64)
    ops = (g.Reshape("view", (x,), flat), g.Requantize("work", (flat,), y))
    graph = g.Graph("g", (x,), (flat, y), ops)
    refused = {"host": {op.name: "the test wants the accelerator" for op in ops}}
    executable = compile_for(graph, CFG, refused=refused).executable
    assert len(executable.launches) == 1
    value = np.arange(64, dtype=np.int8).reshape(x.shape)
    outputs = run(executable, {"x": value})[0]
    assert np.array_equal(outputs["f"], value.reshape(1, 64)) and np.array_equal(outputs["y"], value.reshape(1, 64))


def test_layers_of_constants_are_the_hosts(like):
    rng = np.random.default_rng(2)
    x, y, z = like("x", 1, 4), like("y", 1, 4), like("z", 1, 4)
    c = g.Tensor("c", (1, 16), data=rng.integers(-128, 128, (1, 16)).astype(np.int8))
    weight, parameters = rng.integers(-9, 9, (4, 16)).astype(np.int8), (np.full(4, 0.01), np.zeros(4, np.int32))
    graph = g.Graph("g", (x,), (z,), (g.QDense("fc", (c,), y, weight, *parameters), g.Add("sum", (y, x), z)))
    values = {"x": rng.integers(-128, 128, x.shape).astype(np.int8)}
    compiled = compile_for(graph, CFG, "double", refused={"host": {"sum": "the test wants the accelerator"}})
    assert [type(choice.module).__name__ for choice in compiled.assignment.choices] == ["HostCpu", "Accelerator"]
    found = run(compiled.executable, values)[0]
    assert np.array_equal(found["z"], reference.trace(graph, values, "double")["z"])


# caches that are states


CACHE, ROW = g.Tensor("cache", (1, 20, 16, 1), scale=0.05), g.Tensor("row", (1, 20), scale=0.05)
WRITE = g.WriteRows("write", (CACHE, ROW, POSITION), g.Tensor("written", (1, 20, 16, 1), scale=0.05))
READ = g.Requantize("read", (WRITE.output,), g.Tensor("y", (1, 20, 16, 1), scale=0.05))
STATE = g.State(CACHE, np.arange(320, dtype=np.int16).astype(np.int8).reshape(CACHE.shape), WRITE.output)
GRAPH = g.Graph("g", (ROW, POSITION), (READ.output,), (WRITE, READ), (STATE,))


def test_a_state_that_only_its_write_reads():
    assert refused_states(GRAPH, GRAPH.ops) == {}


def test_caches_that_are_no_states():
    graph = replace(GRAPH, inputs=(*GRAPH.inputs, CACHE), states=())
    assert refused_states(graph, graph.ops) == {"write": "'cache' is no state that becomes its output"}


def test_caches_whose_former_values_are_read():
    before = g.Requantize("before", (CACHE,), g.Tensor("z", (1, 20, 16, 1), scale=0.05))
    graph = replace(GRAPH, ops=(before, *GRAPH.ops))
    assert refused_states(graph, graph.ops) == {"write": "the values of 'cache' before it are read, too"}


def test_caches_whose_values_another_state_takes():
    """Neither what it held before a run nor what it holds then is elsewhere when the run ends."""
    for new in (CACHE, WRITE.output):
        second = g.State(replace(CACHE, name="second"), STATE.initial, new)
        graph = replace(GRAPH, states=(STATE, second))
        assert refused_states(graph, graph.ops) == {"write": "state 'second' takes its values, too"}


def test_caches_that_another_part_reads():
    assert refused_states(GRAPH, [WRITE]) == {"write": "'written' is read elsewhere"}


def test_symbols_that_are_computed():
    table = g.Tensor("words", (4, 16), scale=0.05, data=np.zeros((4, 16), np.int8))
    token = g.Tensor("token", (1,), "int32")
    op = g.Gather("row", (table, token), g.Tensor("y", (1, 16), scale=0.05), 0)
    assert refused_states(g.Graph("g", (token,), (op.output,), (op,)), [op]) == {}
    assert refused_states(GRAPH, [op]) == {"row": "'token' is no input of the network"}


def test_the_state_of_an_executable_is_packed_and_its_own_next():
    state = state_of(GRAPH, CACHE, CFG)
    assert (state.shape, state.kind, state.next) == ((1, 2, 16, 1, 1, 16), "state", "cache")
    assert state.data is not None and state.data[0, 1, 3, 0, 0, :4].tolist() == STATE.initial[0, 16:, 3, 0].tolist()


# what it costs


def test_layers_with_ternary_channels_need_their_unit(like):
    weight, ones, two = np.ones((32, 16), np.int8), np.ones(32, np.float32), PRESETS["pynq_z1_two"]
    op = g.QDense("d", (like("a", 1, 16),), like("b", 1, 32), weight, ones, np.zeros(32, np.int32), ternary=16)
    assert Accelerator(CFG).refusal(op) == "16 ternary channels: pynq_z1 has units gemm, not ternary"
    assert LayerAccelerator(CFG).refusal(op) == "16 ternary channels: only whole networks run on unit ternary"
    accelerator = Accelerator(two)
    assert not accelerator.refusal(op) and accelerator.seconds((op,)) > 0
    assert [memory.name for memory in accelerator.memories] == ["inp", "wgt", "twgt", "acc", "DRAM"]


def test_what_fits_no_scratchpad_runs_on_the_host(like, conv):
    cfg = Config("small", inp_bytes=64, wgt_bytes=1 << 12, acc_bytes=1 << 10, extensions=CFG.extensions)
    graph = g.Graph("g", (X,), (like("y"),), (conv(1),))
    executable = compile_graph(graph, cfg)
    assert not executable.launches


def test_layers_cannot_be_faster_than_their_weights_arrive(like):
    rng = np.random.default_rng(1)
    weight = rng.integers(-99, 99, (640, 128)).astype(np.int8)
    parameters = np.full(640, 0.002, np.float32), np.zeros(640, np.int32)
    op = g.QDense("dense", (like("a", 1, 128),), like("b", 1, 640), weight, *parameters)
    for module in (Accelerator(CFG), LayerAccelerator(CFG)):
        assert module.seconds((op,)) > weight.nbytes / 8 / 100e6  # 8 bytes per cycle at 100 MHz


@pytest.mark.parametrize("name", ["tiny", "pynq_z1", "pynq_z1_plus"])
def test_costs_of_operators_add_up_to_the_launch(name):
    """Each alone, less what it overlaps with the one before."""
    compiled = compile_for(import_model(DIGITS), PRESETS[name])
    mine = [choice for choice in compiled.assignment.choices if choice.module.name == "accelerator"]
    module, ops = mine[0].module, [op for choice in mine for op in choice.ops if op.viewed is None]
    seconds = module.seconds(ops) - sum(map(module.overlap_seconds, ops, ops[1:]))
    assert seconds * cost.CLOCK == pytest.approx(launch_cycles(compiled.executable), rel=0.02)


def test_operators_in_any_order_overlap():
    """One that reads a cache before it is written, and one that reads what the next one makes."""
    cache, row, at = g.Tensor("c", (1, 64, 64, 1)), g.Tensor("r", (1, 64)), g.Tensor("p", (1,), "int32")
    read = g.Requantize("read", (cache,), g.Tensor("y", cache.shape, scale=2.0))
    write = g.WriteRows("write", (cache, row, at), g.Tensor("next", cache.shape))
    again = g.Requantize("again", (read.output,), g.Tensor("z", cache.shape))
    for one, other in ((read, write), (write, read), (again, read), (read, again)):
        assert not refusal(one, PLUS) and overlap(one, other, PLUS, {}) < cycles(other, PLUS)


# layers one by one


NARROW, RESULT = g.Tensor("x", (1, 8, 6, 6), zero_point=3), g.Tensor("y", (1, 8, 6, 6))


def narrow_conv(groups=1):
    weight = np.full((8, 8 // groups, 3, 3), -128, np.int8)
    parameters = np.ones(8, np.float32), np.zeros(8, np.int32)
    return g.QConv2d("conv", (NARROW,), RESULT, weight, *parameters, pads=(1, 1, 1, 1), groups=groups)


def test_refusals_of_layers():
    vta, narrow = LayerAccelerator(PRESETS["vta"]), LayerAccelerator(Config("w4", wgt_bits=4, wgt_bytes=1 << 16))
    assert vta.refusal(narrow_conv()) == ""
    assert vta.refusal(narrow_conv(8)) == "it has 8 groups"
    assert narrow.refusal(narrow_conv()) == "weights -128..-128: wgt_bits is 4, which holds -8..7"
    large = replace(narrow_conv(), weight=np.full((8, 8, 3, 3), 8, np.int8))
    assert narrow.refusal(large) == "weights 8..8: wgt_bits is 4, which holds -8..7"
    assert "inp_bits is 4" in LayerAccelerator(Config(inp_bits=4, inp_bytes=1 << 14)).refusal(narrow_conv())


@pytest.mark.parametrize(("name", "kinds"), [("vta", ["pad", "pack"]), ("pynq_z1", ["pack"])])
def test_steps_of_a_layer(name, kinds):
    steps = Steps(g.Graph("g", (NARROW,), (RESULT,), (narrow_conv(),)), PRESETS[name])
    LayerAccelerator(PRESETS[name]).generate(steps, steps.graph.of(g.Divisible))
    assert [getattr(s, "op", "launch") for s in steps.steps] == [*kinds, "launch", "accumulators", "requantise"]
    assert steps.executable().steps[len(kinds)].macs == narrow_conv().macs


def test_a_window_that_the_weights_memory_does_not_hold_stays_on_the_host():
    graph = g.Graph("g", (NARROW,), (RESULT,), (narrow_conv(),))
    few = load_config("1x16_i8w8a32_15_15_11_17")  # 8 entries of weights
    with pytest.raises(Refusal, match="one output block needs 9 entries of input and 9 of weights; it has 2048 and 8"):
        LayerAccelerator(few).generate(Steps(graph, few), graph.of(g.Divisible))
    executable = compile_graph(graph, few)
    assert not executable.launches
    found = run(executable, {"x": np.full(NARROW.shape, 4, np.int8)})[0]["y"]
    assert (found == -128).all()  # 32 to 72 products of -128 and 1
