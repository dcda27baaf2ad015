"""The host: its times, and element-wise operators as one table."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.compiler.target.host import HostCpu, HostModel, tabled
from tilewright.compiler.target.steps import Steps
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

X, Y = g.Tensor("x", (1, 8, 4, 4)), g.Tensor("y", (1, 8, 4, 4))


def conv(groups):
    weight = np.ones((8, 8 // groups, 3, 3), np.int8)
    parameters = np.ones(8, np.float32), np.zeros(8, np.int32)
    return g.QConv2d("conv", (X,), Y, weight, *parameters, pads=(1, 1, 1, 1), groups=groups)


def test_times_follow_the_fields():
    model = HostModel(clock=1e6, mac=2, depthwise_mac=5, byte=3, moved_byte=1, softmax_byte=100, dispatch=10)
    cycles = {
        conv(1): 2 * 9216 + 3 * 128,
        conv(8): 5 * 1152 + 3 * 128,
        g.Add("add", (X, X), Y): 3 * 384,
        g.BatchMatMul("matmul", (X, X), Y): 2 * 512 + 3 * 384,
        g.Reshape("reshape", (X,), g.Tensor("r", (1, 128))): 256,
        g.Softmax("softmax", (X,), g.Tensor("s", X.shape, scale=1 / 256, zero_point=-128), 1): 3 * 12 * 128 + 200 * 16,
    }
    gates, cells = g.Tensor("g", (1, 3, 8), "int16"), g.Tensor("c", (1, 2), "int16", 2.0**-12)
    facts = np.ones((8, 2), np.int8), np.zeros(8, np.int32), np.ones(8), 1.0
    steps = g.Lstm("lstm", (gates, g.Tensor("h", (1, 2)), cells), g.Tensor("w", (1, 4, 2), "int16"), *facts)
    cycles[steps] = 2 * 48 + 100 * 30 + 3 * (48 + 2 + 4 + 16)
    for op, expected in cycles.items():
        assert np.isclose(model.seconds(op), (expected + 10) / 1e6), op.name
    assert np.isclose(model.moved_seconds(90), 100e-6)


def test_its_passes_are_named_and_explained_in_a_line():
    table = "Element-wise operators in a row become one table, where the host runs them."
    sums = "Integer sums that are scaled, added to a bias and clamped in float32 are one operator."
    assert HostCpu().passes() == [("tabled", table), ("scaled_sums", sums)]


def test_the_module_runs_kernels_and_needs_no_transfer():
    host, op = HostCpu(), conv(1)
    assert host.transfer_seconds(X) == 0 and host.seconds((op,)) == host.model.seconds(op)
    steps = Steps(g.Graph("g", (X,), (Y,), (op,)), PRESETS["tiny"])
    host.generate(steps, (op,))
    assert [s.name for s in steps.steps] == ["conv.acc", "conv"]


RNG = np.random.default_rng(4)
CFG = PRESETS["pynq_z1"]
SHAPE = (1, 3, 8, 6)


def t(name, *shape, dtype="int8", scale=0.05, zero_point=3, data=None):
    if dtype in ("float32", "uint8"):
        return g.Tensor(name, shape or SHAPE, dtype)
    return g.Tensor(name, shape or SHAPE, dtype, scale, zero_point, data)


def real(name, *shape):
    return t(name, *shape, dtype="float32")


def one(value, name="one"):
    return t(name, 1, data=np.array([value], np.int8))


def root_of(x, y, middle="sqrt"):
    """A square root in float32 of int8 `x`."""
    a, b = real(f"{y.name}.real", *x.shape), real(f"{y.name}.root", *x.shape)
    ops = g.Dequantize(a.name, (x,), a), g.NumberFunction(b.name, (a,), b, middle)
    return [*ops, g.Quantize(y.name, (b,), y, True)]


def kinds(graph):
    return [type(op).__name__ for op in graph.ops]


def same(graph):
    """The graph with tables, which gives the values of the one without, alone and as a program."""
    found = tabled(graph)
    for _ in range(2):
        numbers = {i.name: (RNG.integers(0, 256, i.shape), i.dtype) for i in graph.inputs}
        inputs = {name: (x - 128 * (kind == "int8")).astype(kind) for name, (x, kind) in numbers.items()}
        plain, _ = reference.run(graph, inputs)
        tables, _ = reference.run(found, inputs)
        program = run(compile_graph(graph, CFG), inputs)[0]
        for y in graph.outputs:
            np.testing.assert_array_equal(tables[y.name], plain[y.name])
            np.testing.assert_array_equal(program[y.name], plain[y.name])
    return found


@pytest.mark.parametrize("others_read", [False, True])
def test_a_function_in_float_with_the_sum_behind_it(others_read):
    x, y, z = t("x"), t("y"), t("z", scale=0.08)
    ops = (*root_of(x, y, "abs"), g.Add("z", (y, one(9)), z))
    found = same(g.Graph("net", (x,), (y, z) if others_read else (z,), ops))
    assert kinds(found) == (["Lookup", "Add"] if others_read else ["Lookup"]) and found.ops[-1].output is z


def test_an_image_of_bytes_less_a_mean_per_channel():
    """As networks begin: the table needs the channel, too, and the image is brought to NCHW behind it."""
    x, a, b = t("x", 1, 8, 6, 3, dtype="uint8"), real("a", 1, 8, 6, 3), real("b")
    q, d, y = t("q", scale=1.0, zero_point=-128), t("d", scale=0.9), t("y", scale=0.02)
    means = t("means", 1, 3, 1, 1, scale=1.0, zero_point=-128, data=np.array([-20, 5, 99], np.int8).reshape(1, 3, 1, 1))
    ops = g.Cast("a", (x,), a), g.Transpose("b", (a,), b, (0, 3, 1, 2)), g.Quantize("q", (b,), q, True)
    found = same(g.Graph("net", (x,), (y,), (*ops, g.Sub("d", (q, means), d), g.Mul("y", (d, one(7)), y))))
    assert kinds(found) == ["PairLookup", "Transpose"] and x in found.ops[0].inputs


def test_bytes_alone_become_int8_first():
    x, a, y = t("x", dtype="uint8"), real("a"), t("y", scale=1.5)
    found = same(g.Graph("net", (x,), (y,), (g.Cast("a", (x,), a), g.Quantize("y", (a,), y, True))))
    assert kinds(found) == ["Recode", "Lookup"]


@pytest.mark.parametrize("op", ["mul", "div"])
def test_a_product_of_two_in_float(op):
    """One of them in another layout, which is changed as int8. A quotient stays: 0 / 0 is no number."""
    x, z, y = t("x"), t("z", 8, 6, 3), t("y", scale=0.3)
    a, b, c = real("a"), real("b", 8, 6, 3), real("c", 1, 8, 6, 3)
    d, e = real("d"), real("e")
    ops = [g.Dequantize("a", (x,), a), g.Dequantize("b", (z,), b), g.Reshape("c", (b,), c)]
    ops += [g.Transpose("d", (c,), d, (0, 3, 1, 2)), g.NumberBinary("e", (a, d), e, op)]
    graph = g.Graph("net", (x, z), (y,), (*ops, g.Quantize("y", (e,), y, True)))
    if op == "div":
        assert tabled(graph).ops == graph.ops
        return
    found = same(graph)
    assert kinds(found) == ["Reshape", "Transpose", "PairLookup"]
    assert {op.output.dtype for op in found.ops} == {"int8"}


def test_squares_of_other_ranks_than_images():
    shape = (4, 5, 6)
    x, z = t("x", *shape), t("z", *shape)
    a, b, y = t("a", *shape, scale=0.1), t("b", *shape, scale=0.1), t("y", *shape, scale=0.2)
    ops = g.Mul("a", (x, x), a), g.Mul("b", (z, z), b), g.Add("y", (a, b), y)
    assert kinds(same(g.Graph("net", (x, z), (y,), ops))) == ["PairLookup"]


def stays(inputs, output, *ops):
    graph = g.Graph("net", inputs, (output,), ops)
    return tabled(graph).ops == graph.ops


def test_what_the_accelerator_computes_stays():
    x, y, z, a, b = t("x"), t("y"), t("z", scale=0.08), t("a"), t("b")
    table = RNG.integers(-128, 128, 256).astype(np.int8)
    assert stays((x,), z, g.Lookup("y", (x,), y, "f", table), g.Mul("z", (x, y), z))
    ops = (*root_of(x, y, "abs"), *root_of(a, b, "abs"), g.Add("z", (y, b), z))
    assert kinds(tabled(g.Graph("net", (x, a), (z,), ops))) == ["Lookup", "Lookup", "Add"]


def test_what_is_no_function_of_bytes_stays():
    x, row, a, b, y = t("x"), t("r", 1, 3, 1, 1), real("a"), real("b"), t("y")
    many, wide = replace(real("many"), data=np.indices(SHAPE, np.float32)[3]), real("row", 1, 3, 1, 1)
    first, last = g.Dequantize("a", (x,), a), g.Quantize("y", (b,), y)
    moved, turned = real("moved", 1, 8, 6, 3), t("y", 1, 8, 6, 3)
    assert stays((a,), y, g.NumberBinary("b", (a, a), b, "mul"), last)  # of a float32 input
    assert stays((x,), y, first, g.NumberBinary("b", (a, many), b, "mul"), last)  # a constant of many values
    product = g.NumberBinary("b", (a, wide), b, "mul")
    ends = g.Transpose("moved", (b,), moved, (0, 2, 3, 1)), g.Quantize("y", (moved,), turned)
    assert stays((x, row), turned, first, g.Dequantize("row", (row,), wide), product, *ends)  # broadcast, then moved
    assert stays((x,), y, *root_of(x, y))  # roots of negative numbers, which quantising refuses


def test_2000_functions_in_a_row_are_one_table():
    x, values = t("x"), [real(f"r{k}") for k in range(2001)]
    ops = [g.NumberFunction(y.name, (before,), y, "neg") for before, y in zip(values, values[1:])]
    y = t("y")
    ends = [g.Dequantize("r0", (x,), values[0])], [g.Quantize("y", (values[-1],), y, True)]
    graph = tabled(g.Graph("deep", (x,), (y,), (*ends[0], *ops, *ends[1])))
    (table,) = graph.ops
    assert isinstance(table, g.Lookup)
    np.testing.assert_array_equal(table.table, np.arange(-128, 128))


def test_a_constant_of_equal_numbers_is_one_number():
    """As the mean of each channel that a preprocessing subtracts."""
    x = g.Tensor("x", (1, 2, 2, 3), "uint8")
    a, b = (g.Tensor(name, x.shape, "float32") for name in "ab")
    y = g.Tensor("y", x.shape, "int8", 1.0, 0)
    for mean, kind in (np.full((1, 1, 1, 3), 128, np.float32), "Lookup"), (np.arange(3, dtype=np.float32), None):
        known = g.Tensor("mean", mean.shape, "float32", data=mean)
        ops = g.Cast("cast", (x,), a), g.NumberBinary("less", (a, known), b, "sub"), g.Quantize("q", (b,), y)
        found = tabled(g.Graph("net", (x,), (y,), ops))
        assert ("Lookup" in kinds(found)) == (kind == "Lookup")
        value = np.arange(12, dtype=np.uint8).reshape(x.shape) * 23
        wanted = np.clip(value.astype(int) - mean.astype(int), -128, 127)
        assert np.array_equal(reference.run(found, {"x": value})[0]["y"], wanted)
