"""Which nodes are taken, how they are grouped, what is cut out of a file, and when an interpreter has another one."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.delegate.native import Given
from tilewright.compiler.delegate.partition import check_claim, cut, ends, grouped, import_part, refusal
from tilewright.compiler.frontend.tflite.file import read
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
