"""Networks with memory, quantised by LiteRT's own quantiser: exact from run to run, and where each part runs.

LiteRT is its reference kernels (resolver BUILTIN_REF), contract double. Its quantiser gives SVDF states of int16.
"""

import numpy as np
import pytest

RELU, TANH, VALID = 1, 4, 1
BINS = 20  # features of an input


class Streaming:
    """A keyword spotter that takes one step of a spectrogram at a time, and keeps its windows in variables."""

    def __init__(self, n):
        self.n, self.shapes = n, {}
        n.m.node("CALL_ONCE", [], [], initSubgraphIndex=1)
        x = n.conv(self.window(n.input(1, 2, 1, BINS), 3), 140, (5, 1), act=RELU, padding=VALID)
        for kernel in (5, 9):
            x = n.depthwise(self.window(x, kernel - 1), (kernel, 1), padding=VALID)
            x = n.conv(x, 136 + kernel, act=RELU)
        n.output(n.function("LOGISTIC", n.dense(n.reshape(x, 1, n.shape(x)[3]), 3)))
        self.initialise()

    def window(self, x, length):
        """The last `length` rows and those of `x`."""
        n, shape = self.n, (1, length, 1, self.n.shape(x)[3])
        name = b"window %d" % len(self.shapes)
        self.shapes[name] = shape
        handle = n.m.node("VAR_HANDLE", [], [n.m.tensor((), dtype="RESOURCE")], sharedName=name)
        rows = n.concat(n.m.node("READ_VARIABLE", [handle], [n.m.tensor(shape, dtype="FLOAT32")]), x, axis=1)
        cut = n.numbers(0, n.shape(x)[1], 0, 0), n.numbers(0, 0, 0, 0), n.numbers(1, 1, 1, 1)
        kept = n.op("STRIDED_SLICE", [rows, *cut], shape, beginMask=13, endMask=15)
        n.m.node("ASSIGN_VARIABLE", [handle, kept], [])
        return rows

    def initialise(self):
        """The subgraph that gives the variables their first values."""
        other = type(self.n.m)(self.n.m.folder)
        other.model = self.n.m.model
        for name, shape in self.shapes.items():
            handle = other.node("VAR_HANDLE", [], [other.tensor((), dtype="RESOURCE")], sharedName=name)
            other.node("ASSIGN_VARIABLE", [handle, other.const(np.zeros(shape, np.float32))], [])
        self.n.m.model.subgraphs.append(other.graph)


def svdf(n):
    x = n.input(1, BINS)
    for units, memory, rank in ((140, 8, 1), (76, 6, 2)):
        rows, features = units * rank, n.shape(x)[1]
        weights = n.weights(rows, features, fan_in=features), n.weights(rows, memory, fan_in=memory)
        inputs = [x, *weights, n.bias(units), n.variable(1, rows * memory)]
        x = n.op("SVDF", inputs, (1, units), rank=rank, fusedActivationFunction=RELU)
    n.output(n.function("SOFTMAX", n.dense(x, 5), beta=1.0))


def lstm(n, steps=7, units=20):
    gates = [n.weights(units, c, fan_in=c) for c in (BINS, units) for _ in range(4)]
    biases = [n.bias(units) for _ in range(4)]
    hidden, cells = (n.variable(1, units) for _ in range(2))
    inputs = [n.input(1, steps, BINS), *gates, -1, -1, -1, *biases, -1, -1, hidden, cells, *[-1] * 4]
    shape, options = (1, steps, units), {"fusedActivationFunction": TANH, "cellClip": 10.0}
    y = n.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, shape, **options)
    cut = n.numbers(0, steps - 1, 0), n.numbers(1, steps, units), n.numbers(1, 1, 1)
    n.output(
        n.function("SOFTMAX", n.dense(n.op("STRIDED_SLICE", [y, *cut], (1, units), shrinkAxisMask=2), 5), beta=1.0)
    )


# what the network is -> (its maker, launches, the part of the MACs in them, kinds of operators on the host)
CASES = {
    "keyword spotter": (Streaming, 1, 1, {"Lookup"}),
    "SVDF": (svdf, 1, 0.803, {"Concat", "StridedSlice", "Dense16", "Filter16", "QDense", "Softmax"}),
    "LSTM": (lstm, 1, 0.498, {"Lstm", "LstmOutputs", "LstmCells", "StridedSlice", "QDense", "Softmax"}),
}


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def path(case, network):
    n = network()
    CASES[case][0](n)
    return n.quantise()


def test_the_reference_gives_the_bytes_of_litert(path, samples, golden, litert, assert_equal):
    given = samples(path, 12)
    assert_equal(golden(path, given), litert(path, given))


def test_the_reference_gives_the_bytes_of_tflite_micro(case, path, samples, golden, micro, assert_equal):
    if case == "LSTM":
        pytest.skip("its gates are polynomials in fixed point")
    given = samples(path, 12)
    assert_equal(golden(path, given), micro(path, given))


def test_the_device_gives_the_bytes_of_the_reference(case, path, samples, on_device):
    _, launches, macs, host = CASES[case]
    shares = on_device(path, samples(path, 5))
    assert (shares.launches, round(shares.macs, 3)) == (launches, macs)
    assert shares.host == host
