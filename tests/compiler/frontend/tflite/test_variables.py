"""Variables of .tflite files: resources keep their values as they do in LiteRT."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError

SHAPE, SCALE = (1, 2, 3, 4), (0.05, -5)


class Streaming:
    """y = x + v, v = the new y: a network whose variable starts with `first`, if it is given."""

    def __init__(self, m, first=None, shape=SHAPE, assigned=True):
        self.m = m
        x = m.input(shape, *SCALE)
        if first is not None:
            m.node("CALL_ONCE", [], [], initSubgraphIndex=1)
        self.handle = m.node("VAR_HANDLE", [], [m.tensor((), dtype="RESOURCE")], sharedName=b"memory")
        self.read = m.node("READ_VARIABLE", [self.handle], [m.tensor(shape, *SCALE)])
        self.sum = m.op("ADD", [x, self.read], shape, *SCALE)
        if assigned:
            m.node("ASSIGN_VARIABLE", [self.handle, self.sum], [])
        self.first = first

    def save(self, kind="ASSIGN_VARIABLE"):
        if self.first is not None:
            other = type(self.m)(self.m.folder)
            other.model, other.graph = self.m.model, type(self.m.graph)()
            g = other.graph
            g.tensors, g.operators, g.inputs, g.outputs = [], [], [], []
            handle = other.node("VAR_HANDLE", [], [other.tensor((), dtype="RESOURCE")], sharedName=b"memory")
            value = other.const(self.first, *SCALE)
            if kind == "ASSIGN_VARIABLE":
                other.node(kind, [handle, value], [])
            else:
                other.op(kind, [value, value], np.shape(self.first))
            self.m.model.subgraphs.append(g)
        return self.m.save()


def inputs(shape=SHAPE, n=5):
    return np.random.default_rng(3).integers(-40, 40, (n, *shape)).astype(np.int8)


@pytest.mark.parametrize("shape", [SHAPE, (2, 7)])
def test_a_variable_is_kept(tflite, litert_sequence, sequence, shape):
    first = np.random.default_rng(1).integers(-40, 40, shape).astype(np.int8)
    made = Streaming(tflite(), first, shape)
    made.m.output(made.sum)
    path = made.save()
    np.testing.assert_array_equal(sequence(path, inputs(shape)), litert_sequence(path, inputs(shape)))
    (state,) = import_tflite(path).states
    np.testing.assert_array_equal(state.initial, first)


def test_a_read_behind_the_assignment_sees_what_it_gave(tflite, litert_sequence, sequence):
    made = Streaming(tflite(), np.zeros(SHAPE, np.int8))
    again = made.m.node("READ_VARIABLE", [made.handle], [made.m.tensor(SHAPE, *SCALE)])
    made.m.output(made.m.op("SUB", [again, made.read], SHAPE, 0.07, 3))
    path = made.save()
    np.testing.assert_array_equal(sequence(path, inputs()), litert_sequence(path, inputs()))


def test_a_variable_that_is_only_read_stays(tflite, litert_sequence, sequence):
    made = Streaming(tflite(), np.full(SHAPE, 9, np.int8), assigned=False)
    made.m.output(made.sum)
    path = made.save()
    np.testing.assert_array_equal(sequence(path, inputs()), litert_sequence(path, inputs()))


def test_without_first_values_a_variable_is_zero(tflite, sequence):
    made = Streaming(tflite())
    made.m.output(made.sum)
    (first,) = sequence(made.save(), inputs(n=1))
    np.testing.assert_array_equal(first, inputs(n=1))


def test_refusals(tflite):
    m = tflite()
    made = Streaming(m, np.zeros((1, 2), np.int8))
    m.output(made.sum)
    with pytest.raises(UnsupportedError, match=r"the variable starts as int8 \(1, 2\)"):
        import_tflite(made.save())
    m = tflite()
    made = Streaming(m, np.zeros(SHAPE, np.int8))
    m.output(made.sum)
    with pytest.raises(UnsupportedError, match="call_once_0' .* runs ADD 'add_1'; only assignments of constants"):
        import_tflite(made.save("ADD"))
    m = tflite()
    made = Streaming(m)
    m.output(m.node("READ_VARIABLE", [made.handle], [m.tensor(SHAPE, 0.5, 1)]))
    with pytest.raises(
        UnsupportedError, match="takes a variable of int8 .*, zero point -5, for int8 .* 0.5, 1; they must"
    ):
        import_tflite(made.save())
    m = tflite()
    m.input(SHAPE)
    m.node("CALL_ONCE", [], [], initSubgraphIndex=3)
    m.output(m.node("READ_VARIABLE", [m.tensor((), dtype="RESOURCE", name="r")], [m.tensor(SHAPE, *SCALE)]))
    with pytest.raises(UnsupportedError, match="runs subgraph 3, which the file does not have; .* names 'r', which no"):
        import_tflite(m.save())
