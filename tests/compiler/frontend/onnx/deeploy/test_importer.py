"""Whole files in the dialect: Deeploy's own networks byte by byte, names, damaged and foreign files."""

import re
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.compiler.frontend.onnx import import_onnx
from tilewright.compiler.graph import reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import load_config
from tilewright.hw.errors import FileError, TilewrightError, UnsupportedError
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime.loader import run

FOLDER = Path(__file__).parents[6] / "shared" / "deeploy"
NETWORKS = sorted(path.parent for path in FOLDER.glob("*/network.onnx"))
MOST_SECONDS = 10


def stored(folder, graph):
    """(inputs by name, outputs by name) of a network, from the arrays beside it, which are in order."""
    given, wanted = (np.load(folder / f"{name}.npz") for name in ("inputs", "outputs"))
    arrays = [given[key] for key in given.files if given[key].size]
    inputs = {t.name: array.astype(np.int8) for t, array in zip(graph.inputs, arrays, strict=True)}
    return inputs, {t.name: wanted[key] for t, key in zip(graph.outputs, wanted.files, strict=True)}


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
    assert "/changed.onnx: 3 unsupported operators: iGELU 'iGELU_1' of domain 'org.foreign' is not supported; " in found
    assert "Sigmoid 'Sigmoid_2' (and 1 more) is not supported beside Deeploy's operators" in found


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
