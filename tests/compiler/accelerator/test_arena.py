"""Where the activations of a launch lie."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.launch import arena_plan, bases, is_view, members, packed_as
from tilewright.compiler.graph import reference
from tilewright.compiler.kernels.recording import whole_blocks
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

CFG = PRESETS["pynq_z1"]
X = g.Tensor("x", (1, 16, 6, 6), scale=0.1, zero_point=3)


def test_views_are_reshapes_of_vectors(like):
    vector, flat = like("v", 1, 64, 1, 1), like("f", 1, 64)
    assert is_view(g.Reshape("op", (vector,), flat)) and is_view(g.Reshape("op", (flat,), vector))
    assert not is_view(g.Reshape("op", (X,), like("y", 1, 576)))
    assert not is_view(g.Reshape("op", (flat,), like("y", 2, 32)))


def test_views_keep_channels_or_are_lanes(like):
    rows, image = like("r", 3, 64), like("i", 1, 16, 3, 4)
    pixels = like("p", 1, 16, 3, 1, 4)
    lanes, reshape = g.Lanes("lanes", (rows,), image, 16), g.Reshape("pixels", (image,), pixels)
    assert is_view(lanes) and is_view(reshape)
    flat = g.Reshape("flat", (like("v", 1, 64, 1, 1),), like("f", 1, 64))
    assert packed_as((lanes, reshape, flat)) == {"i": image, "p": pixels, "f": flat.x}


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


def test_views_have_the_bytes_of_another_tensor(like):
    a, b = like("v", 1, 64, 1, 1), like("f", 1, 64)
    ops = (g.Reshape("one", (a,), b), g.Requantize("two", (b,), like("y", 1, 64)))
    assert bases(ops) == {"v": "v", "f": "v", "y": "y"}


def test_parts_of_blocks_are_not_computed_in_their_place(like):
    parts = like("a", 1, 3, 6, 6), like("b", 1, 16, 6, 6)
    assert not whole_blocks(g.Concat("op", parts, like("y", 1, 19, 6, 6), 1), CFG)
    assert whole_blocks(g.Concat("op", parts[::-1], like("y", 1, 19, 6, 6), 1), CFG)
    assert not whole_blocks(g.Concat("op", (parts[1],) * 2, like("y", 1, 16, 12, 6), 2), CFG)


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
