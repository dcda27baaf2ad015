"""Which nodes are taken, how they are grouped, what is cut out of a file, and when an interpreter has another one."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate.abi import Given
from tilewright.apps.delegate.partition import check_claim, cut, ends, grouped, import_part, is_the_files, refusal
from tilewright.compiler import graph as g
from tilewright.compiler.frontend.tflite.file import Subgraph, read
from tilewright.hw.errors import InputError, UnsupportedError

SHAPE = (1, 4, 4, 16)


def conv(m, x):
    return m.op("CONV_2D", [x, *m.weights((16, 1, 1, 16))], SHAPE, 0.05, -3, strideH=1, strideW=1)


@pytest.fixture
def fork(tflite):
    """0 conv -> 1 relu -> 2 conv and 3 conv of the input -> 4 add of both -> 5 relu."""
    m = tflite()
    x = m.input(SHAPE)
    y = conv(m, m.op("RELU", [conv(m, x)], SHAPE, 0.05, -3))
    z = m.op("ADD", [y, conv(m, x)], SHAPE)
    m.output(m.op("RELU", [z], SHAPE))
    return read(m.save())


def names(file, numbers):
    return [file.tensors[k].name for k in numbers]


def test_the_ends_of_a_part(fork):
    outputs = [node.outputs[0] for node in fork.nodes]
    assert ends(fork, [2, 0]) == Given((0, 2), (fork.inputs[0], outputs[1]), (outputs[0], outputs[2]))
    assert ends(fork, [4, 5]) == Given((4, 5), (outputs[2], outputs[3]), (outputs[5],))
    assert ends(fork, [4, 5], every=True).outputs == (outputs[4], outputs[5])


def test_groups_are_those_of_the_interpreter(fork):
    convolutions = [n for n, node in enumerate(fork.nodes) if node.kind == "CONV_2D"]
    assert grouped(fork, convolutions) == [(0, 3), (2,)]
    assert grouped(fork, range(6)) == [(0, 1, 2, 3, 4, 5)] and grouped(fork, []) == []
    assert grouped(fork, [1, 5]) == [(1,), (5,)]


def test_a_part_is_a_graph(fork):
    part = cut(fork, ends(fork, [2, 4]))
    assert [node.name for node in part.nodes] == ["conv_2d_2", "add_4"]
    graph = import_part(fork, ends(fork, [2, 4]), "tflm")
    assert [t.name for t in graph.inputs] == names(fork, part.inputs) and len(graph.layers) == 1
    assert [t.name for t in graph.outputs] == names(fork, [fork.nodes[4].outputs[0]])


@pytest.mark.parametrize(("runtime", "contract"), [("litert", "single"), ("tflm", None)])
def test_dense_layers_round_as_the_runtimes(tflite, runtime, contract):
    m = tflite()
    x = conv(m, m.input(SHAPE))
    m.output(m.op("FULLY_CONNECTED", [x, *m.weights((5, 256), per_channel=False)], (1, 5)))
    file = read(m.save())
    graph = import_part(file, ends(file, [0, 1]), runtime)
    assert {type(op): op.contract for op in graph.layers} == {g.QConv2d: None, g.QDense: contract}


def test_claims_are_names_of_operators():
    assert check_claim(None) is None and check_claim("ADD") == check_claim(["ADD"]) == {"ADD"}
    with pytest.raises(InputError, match="claim: 'Conv' is no operator of TFLite; name them as CONV_2D"):
        check_claim(["ADD", "Conv"])


def test_refusals_have_reasons(tflite, fork):
    assert refusal(fork, 0, None) == "" == refusal(fork, 4, frozenset({"ADD"}))
    assert refusal(fork, 0, frozenset({"SUB", "ADD"})) == "not among the claimed operators, ADD, SUB"
    m = tflite()
    x = m.input(SHAPE)
    m.op("FULLY_CONNECTED", [x, m.const(np.ones((5, 256), np.float32))], (1, 5))
    m.node("DEQUANTIZE", [x], [m.tensor(SHAPE, dtype="FLOAT32")])
    m.output(m.op("ARG_MIN", [x, m.const(np.int32(1))], SHAPE))
    file = read(m.save())
    assert refusal(file, 0, None).startswith("1 unsupported construct: FULLY_CONNECTED 'fully_connected_0'")
    assert "of type float32; int8, uint8, int16, int32 are taken" in refusal(file, 1, None)
    with pytest.raises(UnsupportedError):
        import_part(file, ends(file, [0]), "litert")


class Nodes(c.Context):
    """The context of an interpreter that has the network of a file, or some of another."""

    def __init__(self, part):
        self.abi, self.part, self.kept = c.Abi(), part, []

    def node(self, number):
        node = self.part.nodes[number]
        arrays = [c.int_array(list(numbers)) for numbers in (node.inputs, node.outputs)]
        self.kept += arrays
        inputs, outputs = map(ctypes.addressof, arrays)
        return self.abi.new("node", inputs=inputs, outputs=outputs), self.abi.new(
            "registration", builtin_code=node.code
        )

    def tensor(self, number):
        info = self.part.tensors[number]
        dims, data = c.int_array(list(info.shape)), None if info.data is None else np.ascontiguousarray(info.data)
        self.kept += [dims, data]
        facts = {} if data is None else {"data": data.ctypes.data, "bytes": data.nbytes}
        if info.scale.size == 1:
            facts |= {"scale": info.scale[0], "zero_point": info.zero_point[0]}
        return self.abi.new("tensor", dims=ctypes.addressof(dims), **facts)


def test_the_interpreters_network_is_compared(fork):
    everything = range(len(fork.nodes))
    assert is_the_files(fork, Nodes(fork), everything)
    weights, y = fork.nodes[0].inputs[1], fork.nodes[4].outputs[0]
    for number, change, what in (
        (weights, {"data": np.zeros_like(fork.tensors[weights].data)}, "constant 't1' has other values"),
        (y, {"shape": (1, 4, 4, 8)}, r"tensor '\w+' has shape \(1, 4, 4, 8\), programs are for \(1, 4, 4, 16\)"),
        (y, {"scale": np.array([9], np.float32)}, "has another scale or zero point"),
    ):
        tensors = list(fork.tensors)
        tensors[number] = replace(tensors[number], **change)
        with pytest.raises(InputError, match=f"has not the network of .*{what}.*; give the delegate the same file"):
            is_the_files(fork, Nodes(replace(fork, tensors=tensors)), everything)
    with pytest.raises(InputError, match="operator 1 is another"):
        is_the_files(fork, Nodes(replace(fork, nodes=[fork.nodes[0], *fork.nodes])), everything)


def test_scalar_constants_are_compared(tflite):
    m = tflite()
    x, ends = m.input(SHAPE), [m.const(np.int32(n)) for n in (1, 256)]
    shape = m.node("PACK", ends, [m.tensor((2,), dtype="INT32")], valuesCount=2)
    m.output(m.op("RESHAPE", [x, shape], (1, 256)))
    file = read(m.save())
    assert is_the_files(file, Nodes(file), [0, 1])
    file.tensors[ends[1]] = replace(file.tensors[ends[1]], data=np.array(255, np.int32))
    with pytest.raises(InputError, match="constant '.*' has other values"):
        is_the_files(read(m.save()), Nodes(file), [0, 1])


def test_another_subgraph_of_the_file_is_left_alone(fork):
    branch = Subgraph(fork.tensors, fork.nodes[1:3])
    file = replace(fork, others=(branch,))
    assert not is_the_files(file, Nodes(branch), range(2))
