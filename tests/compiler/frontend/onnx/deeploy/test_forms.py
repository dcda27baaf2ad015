"""Nodes with attributes for inputs, and several operators in one node."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.loader import run


def test_attributes_of_old_opsets(net):
    x, a = net.int8(1, 3, 5, 6), net.input(1, 3, 5, 6)
    net.output(
        net.shift(net.node("Pad", a, mode="constant", pads=[0, 0, 1, 2, 0, 0, 3, 0], value=0.0)),
        net.shift(net.node("Slice", a, starts=[1, 0], ends=[3, -1], axes=[2, 3])),
        net.shift(net.node("Clip", a, min=-20.0, max=50.0)),
        net.shift(net.node("DebugPrint", a)),
    )
    _, found = net.run(x)
    wanted = [np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0))), x[:, :, 1:3, :-1], np.clip(x, -20, 50), x]
    assert all(np.array_equal(one, net.shifted(other, 7349)) for one, other in zip(found, wanted))


@pytest.mark.parametrize("signed", [0, 1])
def test_the_largest_of_windows(net, signed):
    x, pool = net.int8(1, 3, 7, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 0}
    y = net.shift(net.input(1, 3, 7, 6), 1 << 16, signed=signed)
    net.output(net.shift(net.node("MaxPool", y, **pool)), net.shift(net.node("MaxPool", net.input(2, 3, 8), **ROWS)))
    rows = net.int8(2, 3, 8)
    graph, found = net.run(x, rows)
    values = np.pad(x if signed else np.maximum(x, 0), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(values, (3, 3), (2, 3))[:, :, ::2, ::2]
    assert np.array_equal(found[0], net.shifted(windows.max((-1, -2)), 7349))
    assert np.array_equal(found[1], net.shifted(rows.reshape(2, 3, 4, 2).max(-1), 7349))
    assert sum(isinstance(op, g.MaxPool) for op in graph.ops) == 2


ROWS = {"kernel_shape": [2], "strides": [2], "pads": [0, 0]}


@pytest.mark.parametrize(
    ("x", "y", "bias", "attrs"),
    [
        ((5, 6), (6, 7), (5, 7), {}),
        ((5, 6), (6, 7), (5, 1), {"alpha": 2.0, "beta": 3.0}),
        ((6, 5), (7, 6), (7,), {"transA": 1, "transB": 1}),
        ((3, 5, 6), (3, 6, 7), (3, 5, 7), {}),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_matrices_with_sums(net, x, y, bias, attrs, constant):
    arrays = [net.int8(*shape) for shape in (x, y, bias)]
    given = [net.input(*x), *(net.const(a) if constant else net.input(*a.shape) for a in arrays[1:])]
    z = net.node("Gemm", *given, **attrs)
    factor = net.rng.integers(1, 99, (5, 1))
    net.output(z, net.shift(z, factor, 77))
    _, (wide, narrow) = net.run(*arrays)
    a, b = (v.swapaxes(-1, -2) if attrs.get(key) else v for v, key in zip(arrays, ("transA", "transB")))
    wanted = (a @ b) * int(attrs.get("alpha", 1)) + arrays[2] * int(attrs.get("beta", 1))
    assert np.array_equal(wide, wanted) and np.array_equal(narrow, net.shifted(wanted, factor, 77))


def test_operators_with_their_shift_in_one_node(net):
    """The factor, the offset and the divisor, or its logarithm, are inputs or attributes."""
    x, a, w = net.int8(1, 4, 6, 6), net.input(1, 4, 6, 6), net.int8(5, 4, 1, 1)
    numbers = [net.const(v) for v in (np.arange(1, 6).reshape(1, 5, 1, 1), 33)]
    shift = {"div": 1 << 8, "n_levels_out": 256, "signed": 1}
    net.output(net.node("RequantizedConv", a, net.const(w), *numbers, **shift, pads=[0] * 4))
    last = [net.const(v) for v in (3, -4, 12)]
    net.output(net.node("RequantizediGELU", a, *last, b=-30, one=900, n_levels_out=256, signed=1))
    attrs = {"three": 122, "six": 245, "one_over_six": 42, "mul": 9, "add": 5, "shift": 16}
    net.output(net.node("RequantizediHardswish", a, **attrs, n_levels=256, signed=1))
    rows = [net.input(3, 4), net.const(w.reshape(5, 4).T), net.const(7), net.const(70)]
    net.output(net.node("RequantizedGemm", *rows, **shift))
    vectors = net.int8(3, 4)
    _, found = net.run(x, vectors)
    sums = np.einsum("oc,nchw->nohw", w.reshape(5, 4), x)
    assert np.array_equal(found[0], net.shifted(sums, np.arange(1, 6).reshape(1, 5, 1, 1), 33, 8))
    d = np.minimum(np.abs(x), 30) - 30
    gelu = x * ((900 + np.sign(x) * (900 - d * d)) >> 1)
    assert np.array_equal(found[1], net.shifted(gelu, 3, -4, 12))
    assert np.array_equal(found[2], net.shifted(x * (np.clip(x + 122, 0, 245) * 42), 9, 5))
    assert np.array_equal(found[3], net.shifted(vectors @ w.reshape(5, 4).T, 7, 70, 8))


def test_a_file_of_layers_of_whole_numbers_is_in_the_dialect(net):
    """Where nothing else says so: its sums are int32, not float32."""
    x, w, bias = net.int8(1, 3, 6, 6), net.int8(4, 3, 3, 3), net.int8(4)
    y = net.node("Conv", net.input(1, 3, 6, 6), net.const(w), net.const(bias))
    net.output(net.node("Relu", net.node("Add", y, y)))
    graph, (found,) = net.run(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, w) + bias.reshape(-1, 1, 1)
    assert graph.outputs[0].dtype == "int32" and np.array_equal(found, np.maximum(2 * sums, 0))


def test_files_without_layers_of_whole_numbers_are_not(net):
    net.output(net.node("Conv", net.input(1, 1, 4, 4), net.const([[[[0.5]]]])))
    assert net.graph().outputs[0].dtype == "float32"


def test_numbers_of_a_shift_that_are_not_constant(net):
    x = net.input(1, 4)
    net.output(net.node("RequantizediGELU", x, x, x, x, b=-30, one=900))
    with pytest.raises(UnsupportedError, match="RequantizediGELU 'RequantizediGELU_0' is not supported beside Deeploy"):
        net.graph()


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64])
def test_numbers_of_any_type(net, dtype):
    x, w, bias = net.int8(1, 3, 6, 6), net.int8(4, 3, 3, 3), net.int8(1, 4, 1, 1)
    y = net.node("Conv", net.input(1, 3, 6, 6), net.const(w, dtype))
    net.output(net.shift(net.node("Add", y, net.const(bias, dtype)), 50))
    _, (found,) = net.run(x)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    assert np.array_equal(found, net.shifted(np.einsum("nchwij,ocij->nohw", windows, w) + bias, 50))


def outputs_of(net, *arrays):
    """What a file gives beside whose model the arrays lie, of interpreter and device."""
    np.savez(net.folder / "inputs.npz", **{f"input_{k}": array for k, array in enumerate(arrays)})
    graph = net.graph()
    inputs = {t.name: array.astype(t.dtype) for t, array in zip(graph.inputs, arrays)}
    found, _ = reference.run(graph, inputs)
    device, _ = run(compile_graph(graph, PRESETS["pynq_z1"]), inputs)
    assert all(np.array_equal(found[name], device[name]) for name in found)
    return graph, [found[t.name].astype(np.int64) for t in graph.outputs]


def test_inputs_have_the_type_that_those_beside_the_file_need(net):
    image, wide = net.rng.integers(0, 256, (1, 3, 6, 6)), net.rng.integers(-(10**6), 10**6, (1, 5))
    w = net.int8(4, 3, 3, 3)
    y = net.node("Conv", net.input(1, 3, 6, 6), net.const(w), pads=[1] * 4)
    net.output(net.shift(y, 9), net.shift(net.input(1, 5), 7))
    graph, found = outputs_of(net, image, wide)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    assert [t.dtype for t in graph.inputs] == ["uint8", "int32"]
    assert np.array_equal(found[0], net.shifted(np.einsum("nchwij,ocij->nohw", windows, w), 9))
    assert np.array_equal(found[1], net.shifted(wide, 7))
    assert isinstance(graph.ops[1], g.QConv2d)


def test_files_without_operators_of_the_dialect_are_in_it_where_their_inputs_are_integers(net):
    x = net.int8(1, 3, 5, 4)
    y = net.node("ReduceMean", net.node("Add", net.input(1, 3, 5, 4), "x0"), axes=[2], keepdims=0)
    net.output(y)
    graph, (found,) = outputs_of(net, x)
    sums = (2 * x).sum(2)
    assert graph.outputs[0].dtype == "int32"
    assert np.array_equal(found, np.sign(sums) * ((np.abs(sums) + 2) // 5))
    np.savez(net.folder / "inputs.npz", input_0=x + 0.5)
    assert net.graph().outputs[0].dtype == "float32"
