"""Which nodes are taken, in which parts, their programs, and when an interpreter has another network."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from tilewright.apps.delegate import abi as c
from tilewright.apps.delegate.abi import Given
from tilewright.apps.delegate.partition import (
    Planner,
    compiled,
    cut,
    ends,
    import_part,
    is_the_files,
    needs_of,
    refusal,
)
from tilewright.apps.partition import grouped
from tilewright.compiler import graph as g
from tilewright.compiler.frontend.tflite.file import Subgraph, read
from tilewright.hw.config import PRESETS
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
    needs = needs_of(fork)
    assert needs == [[], [0], [1], [], [2, 3], [4]]

    def groups(taken):
        return [group for is_taken, group in grouped(range(6), lambda n, _: needs[n], taken) if is_taken]

    assert groups([n for n, node in enumerate(fork.nodes) if node.kind == "CONV_2D"]) == [[0, 3], [2]]
    assert groups(range(6)) == [[0, 1, 2, 3, 4, 5]] and groups([]) == [] and groups([1, 5]) == [[1], [5]]
    damaged = replace(fork, inputs=())
    assert needs_of(damaged)[0] == [None]


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


CFG = PRESETS["pynq_z1"]
LARGE = (1, 12, 12, 16)


@pytest.fixture
def file(tflite):
    """A large convolution, a sum, a small convolution, a table."""
    m = tflite()
    x = m.input(LARGE)
    y = m.op("CONV_2D", [x, *m.weights((16, 3, 3, 16))], LARGE, 0.05, -3, strideH=1, strideW=1)
    y = m.op("ADD", [x, y], LARGE, 0.05, -3)
    y = m.op("CONV_2D", [y, *m.weights((16, 1, 1, 16))], LARGE, strideH=1, strideW=1)
    m.output(m.op("LOGISTIC", [y], LARGE, 1 / 256, -128))
    return read(m.save())


def planner(file, refused, min_macs=0, every=False):
    return Planner(file, CFG, "litert", min_macs, every, refused)


def test_a_program_computes_its_part(file):
    program = compiled(file, given := ends(file, [0, 1]), CFG, "litert")
    assert [k for k, _ in program.inputs] == list(file.inputs)
    assert [name for _, name in program.outputs] == [file.tensors[file.nodes[1].outputs[0]].name]
    assert (program.launches, program.macs) == (1, 144 * 16 * 144)
    assert program.cycles > 1000 and program.host_seconds > 0
    assert program.covers(given) and program.covers(Given((0, 1), (), ()))
    assert not program.covers(ends(file, [0])) and not program.covers(ends(file, [0, 1], every=True))


def test_small_parts_and_those_without_a_launch_are_left(file):
    refused = {1: "not claimed", 2: "not claimed"}
    (program,) = (found := planner(file, refused)).programs()
    assert program.given.nodes == (0,) and found.refused[3] == "nothing of its part would run on the accelerator"
    small = 144 * 16 * 16
    found = planner(file, {1: "not claimed"}, small)
    assert [program.given.nodes for program in found.programs()] == [(0,), (2, 3)]
    found = planner(file, {1: "not claimed"}, small + 1)
    assert [program.given.nodes for program in found.programs()] == [(0,)]
    assert found.refused[2] == f"its part has {small:,} multiply-accumulates, fewer than min_macs = {small + 1:,}"
    assert found.refused[3] == found.refused[2], "it was of that part"


def test_a_missing_package_is_no_reason_to_leave_a_part(file, monkeypatch):
    def compiling(*_):
        try:
            raise ImportError("none")
        except ImportError:
            raise UnsupportedError("memory plans need ortools") from None

    monkeypatch.setattr("tilewright.compiler.network.compile_for", compiling)
    with pytest.raises(UnsupportedError, match="memory plans need ortools"):
        planner(file, {}).programs()


def test_what_no_module_runs_is_left(file, monkeypatch):
    def compiling(*_):
        raise UnsupportedError(f"{file.path}: target cannot run it")

    monkeypatch.setattr("tilewright.compiler.network.compile_for", compiling)
    assert not (found := planner(file, {})).programs()
    assert set(found.refused.values()) == {"target cannot run it"}
