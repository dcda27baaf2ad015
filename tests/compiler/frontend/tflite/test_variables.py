"""Variables of .tflite files: resources keep their values as they do in LiteRT."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError

SHAPE, SCALE = (1, 2, 3, 4), (0.05, -5)


class Streaming:
    """y = x + v, v = the new y: a network whose variable starts with `first`, if it is given."""

    def __init__(self, m, first=None, shape=SHAPE, assigned=True, scale=SCALE):
        self.m = m
        x = m.input(shape, *SCALE)
        if first is not None:
            m.node("CALL_ONCE", [], [], initSubgraphIndex=1)
        self.handle = m.node("VAR_HANDLE", [], [m.tensor((), dtype="RESOURCE")], sharedName=b"memory")
        self.read = m.node("READ_VARIABLE", [self.handle], [m.tensor(shape, *SCALE)])
        self.sum = m.op("ADD", [x, self.read], shape, *scale)
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


def test_bytes_are_kept_whatever_the_scales_are(tflite, litert_sequence, sequence):
    made = Streaming(tflite(), np.zeros(SHAPE, np.int8), scale=(0.07, 3))
    made.m.output(made.sum)
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
    with pytest.raises(UnsupportedError, match="scale 0.05 and zero point -5 for 0.5 and 1; they must be equal within"):
        import_tflite(made.save())
    m = tflite()
    m.input(SHAPE)
    m.node("CALL_ONCE", [], [], initSubgraphIndex=3)
    m.output(m.node("READ_VARIABLE", [m.tensor((), dtype="RESOURCE", name="r")], [m.tensor(SHAPE, *SCALE)]))
    with pytest.raises(UnsupportedError, match="runs subgraph 3, which the file does not have; .* names 'r', which no"):
        import_tflite(m.save())
    m = tflite()
    made = Streaming(m)
    m.node("ASSIGN_VARIABLE", [made.handle, m.op("RESHAPE", [made.sum], (1, 24), *SCALE)], [])
    m.output(made.sum)
    with pytest.raises(UnsupportedError, match=r"takes a variable of int8 \(1, 2, 3, 4\) for int8 \(1, 24\)"):
        import_tflite(made.save())


SHARED = Path(__file__).parents[5] / "shared" / "networks"


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/networks is not there")
@pytest.mark.parametrize("name", ["R_esphome_v2_vad", "R_tflm_dtln", "R_tflm_mnist_lstm_int8"])
def test_networks_that_people_have(sequence, litert_sequence, name):
    """Run after run; LiteRT rounds dense layers once, as contract single does."""
    path = SHARED / f"{name}.tflite"
    with np.load(SHARED / f"{name}.npz") as given, np.load(SHARED / f"{name}.litert_ref.npz") as expected:
        first, golden = given["inputs"], expected["o0"]
    more = np.random.default_rng(2).integers(-128, 128, (6, *first.shape[1:])).astype(np.int8)
    every = np.concatenate([first, more])
    (mine,) = sequence(path, every, "single")
    np.testing.assert_array_equal(mine[: len(golden)], golden)
    np.testing.assert_array_equal(mine, litert_sequence(path, every)[0])


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/networks is not there")
def test_a_network_of_svdf(sequence):
    """LiteRT reads its int8 state as int16; the outputs are those of TensorFlow Lite Micro."""
    name = "R_tflm_keyword_scrambled_8bit"
    with np.load(SHARED / f"{name}.npz") as given, np.load(SHARED / f"{name}.litert_ref.npz") as expected:
        np.testing.assert_array_equal(sequence(SHARED / f"{name}.tflite", given["inputs"])[0], expected["o0"])
