"""Files in Deeploy's dialect: its own networks byte by byte, nodes of several operators, names and damage."""

import re
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS, load_config
from tilewright.hw.errors import FileError, TilewrightError, UnsupportedError
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime.loader import run

FOLDER = Path(__file__).parents[5] / "shared" / "deeploy"
NETWORKS = sorted(path.parent for path in FOLDER.glob("*/network.onnx"))
MOST_SECONDS = 10


def stored(folder, graph):
    """(inputs by name, outputs by name) of a network, from the arrays beside it, which are in order."""
    given, wanted = (np.load(folder / f"{name}.npz") for name in ("inputs", "outputs"))
    arrays = [given[key] for key in given.files if given[key].size]
    inputs = {t.name: array.astype(np.int8) for t, array in zip(graph.inputs, arrays, strict=True)}
    return inputs, {t.name: wanted[key] for t, key in zip(graph.outputs, wanted.files, strict=True)}


@pytest.mark.circuit
@pytest.mark.skipif(not NETWORKS, reason="../shared/deeploy is not there")
@pytest.mark.parametrize("folder", NETWORKS, ids=lambda folder: folder.name)
def test_deeploys_networks_are_exact_byte_by_byte(folder):
    start = time.process_time()
    graph = import_onnx(folder / "network.onnx")
    executable = compile_graph(graph, load_config("pynq_z1"))
    assert time.process_time() - start < MOST_SECONDS
    inputs, wanted = stored(folder, graph)
    found = [reference.run(graph, inputs, contract)[0] for contract in CONTRACTS] + [run(executable, inputs)[0]]
    assert len(wanted) == 17
    assert all(np.array_equal(one[name], array) for one in found for name, array in wanted.items())


@pytest.mark.circuit
@pytest.mark.slow
@pytest.mark.skipif(not NETWORKS, reason="../shared/deeploy is not there")
@pytest.mark.parametrize("folder", NETWORKS, ids=lambda folder: folder.name)
def test_they_are_one_launch_that_computes_all_products(folder):
    graph = import_onnx(folder / "network.onnx")
    executable = compile_graph(graph, load_config("pynq_z1_plus"))
    inputs, wanted = stored(folder, graph)
    found = run(executable, inputs)[0]
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())
    (launch,) = executable.launches
    assert launch.macs == sum(op.macs for op in graph.ops)


@pytest.mark.slow  # where the circuit must be built first
@pytest.mark.skipif(not NETWORKS, reason="../shared/deeploy is not there")
def test_one_of_them_on_the_circuit():
    folder = next(folder for folder in NETWORKS if folder.name == "microLlama16")
    graph, cfg = import_onnx(folder / "network.onnx"), load_config("pynq_z1_plus")
    inputs, wanted = stored(folder, graph)
    found = run(compile_graph(graph, cfg), inputs, "rtl")[0]
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())


@pytest.mark.skipif(not NETWORKS, reason="../shared/deeploy is not there")
@pytest.mark.parametrize("folder", NETWORKS, ids=lambda folder: folder.name)
def test_their_sums_are_parts_of_operators(folder):
    graph = import_onnx(folder / "network.onnx")
    assert {t.dtype for op in graph.ops for t in (*op.inputs, op.output) if t.data is None} == {"int8"}
    assert len(graph.layers) == 56 and sum(op.weight.size for op in graph.layers) == 524_288


def test_outputs_keep_their_names(net):
    x = net.input(1, 4)
    first = net.shift(x, 70000)
    net.output(first, net.shift(first, 1 << 16), net.shift(x, 1 << 16), net.shift(first, signed=0))
    graph, found = net.run(net.int8(1, 4))
    assert [t.name for t in graph.outputs] == [v.name for v in net.outputs]
    assert np.array_equal(found[0], found[1])


def refused(net, change, error: type[TilewrightError] = UnsupportedError):
    model = net.proto()
    change(model)
    path = net.folder / "changed.onnx"
    onnx.save(model, path)
    with pytest.raises(error) as caught:
        import_onnx(path)
    text = str(caught.value).replace(str(net.folder), "")
    assert "\n" not in text and len(text) <= 300
    return text


def renamed(**names):
    def change(model):
        for node in model.graph.node:
            node.op_type = names.get(node.op_type, node.op_type)

    return change


def test_unknown_operators_are_named(net):
    x = net.input(1, 4)
    net.output(net.shift(net.node("iRMSNorm", net.shift(x), net.const(np.ones(4)), D=4, n_levels=256)))
    wanted = "/changed.onnx: 1 unsupported operator: iFoo 'iRMSNorm_1' is not supported; "
    wanted += "docs/networks.md lists those that are read"
    assert refused(net, renamed(iRMSNorm="iFoo")) == wanted
    assert "iFoo 'iRMSNorm_1' is not supported" in refused(net, renamed(iRMSNorm="iFoo", RequantShift="Relu"))


def test_operators_of_onnx_that_the_dialect_has_not(net):
    x = net.shift(net.input(1, 4))
    net.output(net.node("Sigmoid", x))
    assert "Sigmoid 'Sigmoid_1' is not supported beside Deeploy's operators" in refused(net, lambda model: None)


def test_foreign_operators_are_counted_behind_others_too(net):
    x = net.shift(net.input(1, 4))
    net.output(net.node("Sigmoid", net.node("Sigmoid", net.node("iGELU", x, b=-98, one=9000, domain="org.foreign"))))
    found = refused(net, lambda model: model.opset_import.add(domain="org.foreign", version=1))
    assert (
        "/changed.onnx: 3 unsupported operators: 2 times: Sigmoid 'Sigmoid_2' is not supported beside Deeploy's"
        in found
    )
    assert "; iGELU 'iGELU_1' of domain 'org.foreign' is not supported" in found


def test_damaged_files(net):
    net.output(net.shift(net.node("MatMul", net.input(1, 4), net.const(net.int8(4, 5)))))

    def unmade(model):
        model.graph.node[0].input[1] = "nowhere"

    def shorter(model):
        model.graph.initializer[0].raw_data = b"123"

    def unlike(model):
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3

    def open_size(model):
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "N"

    assert "damaged: MatMul 'MatMul_0' reads 'nowhere', which nothing made" in refused(net, unmade, FileError)
    assert "damaged: constant 'c0'" in refused(net, shorter, FileError)
    assert "inconsistent" in refused(net, unlike, FileError)
    assert "only the first size may be open" in refused(net, open_size)


def test_weights_that_are_no_integers(net):
    net.output(net.shift(net.node("MatMul", net.input(1, 4), net.const(np.full((4, 5), 0.25)))))
    assert "MatMul 'MatMul_0' has weights of 0.25, which is no integer" in refused(net, lambda model: None)


def test_an_output_that_no_input_reaches(net):
    net.output(net.shift(net.input(1, 4)), net.const([1.0]))
    assert "does not come from the inputs" in refused(net, lambda model: None)


def test_an_output_that_is_an_input(net):
    x = net.input(1, 4)
    net.output(net.shift(x), x)
    assert re.search(r"output '\w+' is an input, which is not supported", refused(net, lambda model: None))


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
