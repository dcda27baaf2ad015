"""States of .tflite files: variables, SVDF and LSTM, run one inference after the other."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import Features, TimeFilter
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

RELU, TANH = 1, 4
FILTERS, FEATURES = 12, 10


def svdf(m, kind="INT8", rank=1, memory=8, batch=1, zero_point=0, **options):
    """A network of one SVDF, whose state has the type `kind`."""
    limit = 127 if kind == "INT8" else 8191
    times = m.rng.integers(-limit, limit + 1, (FILTERS, memory)).astype(kind.lower())
    state_scale, time_scale = (0.05, 1 / 127) if kind == "INT8" else (6 / 32768, 1 / 32768)
    bias = m.rng.integers(-2000, 2000, FILTERS // rank).astype(np.int32)
    state = m.tensor((batch, FILTERS * memory), state_scale, zero_point, kind)
    m.graph.tensors[state].isVariable = options.pop("variable", True)
    inputs = [
        m.input((batch, FEATURES), 0.05, -7),
        m.const(m.rng.integers(-127, 128, (FILTERS, FEATURES)).astype(np.int8), 0.02),
        m.const(times, time_scale),
        m.const(bias, state_scale * time_scale),
        state,
    ]
    options = {"rank": rank, "fusedActivationFunction": RELU} | options
    m.output(m.op("SVDF", inputs, (batch, FILTERS // rank), 0.04, -11, **options))
    return m


def lstm(m, n=1, steps=5, size=6, cell_bits=3, clip=10.0, major=False, coupled=False, zero_point=-4, **more):
    """A network of one LSTM; `more` are inputs by position, and options."""
    features = 7

    def gates(make):
        return [-1 if coupled and k == 0 else make(0.004 * (k + 1)) for k in range(4)]

    def matrix(columns):
        return lambda scale: m.const(m.rng.integers(-127, 128, (size, columns)).astype(np.int8), scale)

    x = m.input((steps, n, features) if major else (n, steps, features), 0.03, -7)
    bias = gates(lambda scale: m.const(m.rng.integers(-3000, 3000, size).astype(np.int32), 0.03 * scale))
    hidden = m.tensor((n, size), 0.0078, zero_point)
    cells = m.tensor((n, size), 2.0 ** (cell_bits - 15), dtype="INT16")
    for t in (hidden, cells):
        m.graph.tensors[t].isVariable = True
    inputs = [x, *gates(matrix(features)), *gates(matrix(size)), -1, -1, -1, *bias, -1, -1, hidden, cells, *[-1] * 4]
    between = [m.tensor((0,), dtype="FLOAT32") for _ in range(4)] + [m.tensor((0,), 0.0078, zero_point)]
    for position in [key for key in more if key.isdigit()]:
        inputs[int(position)] = more.pop(position)
    y = m.tensor((steps, n, size) if major else (n, steps, size), 0.0078, zero_point)
    options = {"fusedActivationFunction": TANH, "cellClip": clip, "timeMajor": major} | more
    m.output(m.node("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], intermediates=between, **options))
    return m


def inputs_of(m, runs=12):
    shape = tuple(int(n) for n in m.graph.tensors[m.graph.inputs[0]].shape)
    return np.random.default_rng(7).integers(-128, 128, (runs, *shape)).astype(np.int8)


def check_device(path, inputs, expected):
    """A compiled program gives the expected outputs, too."""
    executable = compile_graph(import_tflite(path), PRESETS["pynq_z1"])
    with Loaded(executable, open_device("model", executable.cfg)) as loaded:
        for x, y in zip(inputs, expected):
            (found,) = loaded.run({executable.inputs[0].name: x}).values()
            np.testing.assert_array_equal(found, y)


SVDFS = [(1, 8, 1), (2, 5, 1), (1, 1, 1), (2, 4, 3)]  # rank, memory, batch


@pytest.mark.parametrize("rank, memory, batch", SVDFS)
def test_svdf_of_int16_state(tflite, sequence, litert_sequence, rank, memory, batch):
    m = svdf(tflite(), "INT16", rank, memory, batch)
    path = m.save()
    (mine,), (theirs,) = sequence(path, inputs_of(m)), litert_sequence(path, inputs_of(m))
    np.testing.assert_array_equal(mine, theirs)
    assert len(np.unique(mine)) > 20
    check_device(path, inputs_of(m), mine)


@pytest.mark.parametrize("kind", ["INT8", "INT16"])
@pytest.mark.parametrize("rank, memory, batch", SVDFS)
def test_svdf_in_micro(tflite, sequence, micro, kind, rank, memory, batch):
    m = svdf(tflite(), kind, rank, memory, batch)
    path = m.save()
    expected = micro(path, [[x] for x in inputs_of(m)])
    np.testing.assert_array_equal(sequence(path, inputs_of(m))[0], np.stack(expected)[:, 0])


@pytest.mark.parametrize("rank, memory, batch, zero_point", [(1, 8, 1, 0), (2, 5, 1, -50), (1, 1, 1, 9), (2, 4, 3, 9)])
def test_svdf_of_int8_state(tflite, sequence, rank, memory, batch, zero_point):
    """By its definition, in Python's integers; the device computes it as a dense layer and a convolution."""
    m = svdf(tflite(), "INT8", rank, memory, batch, zero_point)
    path = m.save()
    (mine,) = sequence(path, inputs_of(m))
    graph = import_tflite(path)
    (features,) = (op for op in graph.ops if isinstance(op, Features))
    (times,) = (op for op in graph.ops if isinstance(op, TimeFilter))
    window = np.zeros((batch, FILTERS, memory), np.int64)
    for x, found in zip(inputs_of(m), mine):
        acc = (x.astype(np.int64) + 7) @ features.weight.T.astype(np.int64)
        new = np.clip(rounded(acc, *features.multipliers) + zero_point, -128, 127) - zero_point
        window = np.concatenate([window[:, :, 1:], new[:, :, None]], 2)
        sums = (window * times.weight.reshape(FILTERS, memory)).sum(2).reshape(batch, -1, rank).sum(2) + times.bias
        np.testing.assert_array_equal(found, np.clip(rounded(sums, *times.multipliers) - 11, -128, 127))
    check_device(path, inputs_of(m), mine)


def rounded(acc, multiplier, exponent):
    """Both roundings, the first up at a tie, the second away from zero."""
    high = (acc * multiplier + (1 << 30)) >> 31
    half = np.where(exponent < 0, 1 << np.maximum(-exponent - 1, 0), 0)
    return np.sign(high) * ((np.abs(high) + half) >> -exponent)


LSTMS = [
    {},
    {"n": 2, "cell_bits": 4, "clip": 0.0, "zero_point": 3},
    {"steps": 1, "clip": 2.0, "zero_point": 0},
    {"n": 2, "steps": 3, "major": True, "zero_point": 11},
    {"coupled": True},
    {"size": 16, "cell_bits": 2, "clip": 0.0},
    {"size": 16, "cell_bits": 6, "clip": 0.0, "zero_point": -128},
]


@pytest.mark.parametrize("options", LSTMS, ids=str)
def test_lstm(tflite, sequence, litert_sequence, options):
    m = lstm(tflite(), **options)
    path = m.save()
    (mine,), (theirs,) = sequence(path, inputs_of(m)), litert_sequence(path, inputs_of(m))
    np.testing.assert_array_equal(mine, theirs)
    assert len(np.unique(mine)) > 20
    check_device(path, inputs_of(m)[:4], mine)


def why(m):
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    return str(caught.value)


def test_svdf_refusals(tflite):
    assert "has a fused activation other than RELU" in why(svdf(tflite(), fusedActivationFunction=0))
    assert "of rank 5" in why(svdf(tflite(), rank=5))
    assert "must be a variable of int8 (N, 96)" in why(svdf(tflite(), variable=False))


@pytest.mark.parametrize(
    "position, shape, dtype, zero, text",
    [
        ("9", (6,), np.int16, 0, "has peepholes, which is not supported"),
        ("16", (6,), np.int16, 0, "has a projection, which is not supported"),
        ("20", (6,), np.int16, 0, "has a layer norm, which is not supported"),
        ("6", (5, 6), np.int8, 0, "has weights of shapes [(5, 6), (6, 6), (6, 7)] on input (1, 5, 7)"),
        ("6", (6, 6), np.int8, 3, "without one scale of its own and zero point 0"),
    ],
)
def test_lstms_with_other_inputs_are_refused(m, position, shape, dtype, zero, text):
    assert text in why(lstm(m, **{position: m.const(np.zeros(shape, dtype), 0.1, zero)}))


def test_lstms_of_other_kinds_are_refused(tflite):
    assert "has an activation other than TANH" in why(lstm(tflite(), fusedActivationFunction=0))
    m = lstm(tflite())
    m.graph.operators[0].intermediates = None
    assert "has 0 intermediate tensors" in why(m)
    for scale, text, tensor in (
        (0.5, "in another quantisation than their state", lambda op: op.intermediates[4]),
        (0.0003, "the cells' scale is", lambda op: op.inputs[19]),
    ):
        m = lstm(tflite())
        m.graph.tensors[tensor(m.graph.operators[0])].quantization.scale = np.array([scale], np.float32)
        assert text in why(m)


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


def read_again(made):
    again = made.m.node("READ_VARIABLE", [made.handle], [made.m.tensor(SHAPE, *SCALE)])
    return made.m.op("SUB", [again, made.read], SHAPE, 0.07, 3)


# shape, first value, options of `Streaming`, output
STREAMS = {
    "kept": (SHAPE, None, {}, None),
    "of two dimensions": ((2, 7), None, {}, None),
    "read behind its assignment": (SHAPE, 0, {}, read_again),
    "whatever the scales are": (SHAPE, 0, {"scale": (0.07, 3)}, None),
    "only read": (SHAPE, 9, {"assigned": False}, None),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_variable_is_that_of_litert(tflite, litert_sequence, sequence, name):
    shape, value, options, output = STREAMS[name]
    rng = np.random.default_rng(1)
    first = rng.integers(-40, 40, shape).astype(np.int8) if value is None else np.full(shape, value, np.int8)
    made = Streaming(tflite(), first, shape, **options)
    made.m.output(output(made) if output else made.sum)
    path = made.save()
    np.testing.assert_array_equal(sequence(path, inputs(shape)), litert_sequence(path, inputs(shape)))
    (state,) = import_tflite(path).states
    np.testing.assert_array_equal(state.initial, first)


def test_without_first_values_a_variable_is_zero(tflite, sequence):
    made = Streaming(tflite())
    made.m.output(made.sum)
    (first,) = sequence(made.save(), inputs(n=1))
    np.testing.assert_array_equal(first, inputs(n=1))


def test_variables_that_are_refused(tflite):
    def other_scale(made):
        made.m.output(made.m.node("READ_VARIABLE", [made.handle], [made.m.tensor(SHAPE, 0.5, 1)]))

    def other_shape(made):
        made.m.node("ASSIGN_VARIABLE", [made.handle, made.m.op("RESHAPE", [made.sum], (1, 24), *SCALE)], [])

    for first, kind, change, text in (
        (np.zeros((1, 2), np.int8), "ASSIGN_VARIABLE", None, "the variable starts as int8 (1, 2)"),
        (np.zeros(SHAPE, np.int8), "ADD", None, "call_once_0' runs ADD 'add_1'; only assignments of constants"),
        (None, "", other_scale, "scale 0.05 and zero point -5 for 0.5 and 1; they must be equal within"),
        (None, "", other_shape, "takes a variable of int8 (1, 2, 3, 4) for int8 (1, 24)"),
    ):
        made = Streaming(tflite(), first)
        made.m.output(made.sum)
        if change:
            change(made)
        with pytest.raises(UnsupportedError) as caught:
            import_tflite(made.save(kind))
        assert text in str(caught.value)
    m = tflite()
    m.input(SHAPE)
    m.node("CALL_ONCE", [], [], initSubgraphIndex=3)
    m.output(m.node("READ_VARIABLE", [m.tensor((), dtype="RESOURCE", name="r")], [m.tensor(SHAPE, *SCALE)]))
    assert "runs subgraph 3, which the file does not have" in (text := why(m)) and "names 'r', which no" in text


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
