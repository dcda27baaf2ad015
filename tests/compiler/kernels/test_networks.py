"""Networks quantised by LiteRT's own quantiser: exact on the device, from run to run, and where each part runs.

LiteRT is its reference kernels (resolver BUILTIN_REF), contract double; of encoders single, as it rounds dense layers
once. Its quantiser gives SVDF states of int16.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

RELU, RELU6, TANH, VALID = 1, 3, 4, 1
CLASSES = 11
BINS = 20  # features of an input


def leaky(n, x):
    return n.function("LEAKY_RELU", x, alpha=0.1)


def hard_swish(n, x):
    return n.function("HARD_SWISH", x)


def detector(n, act):
    """A backbone, two heads of different sizes with a way back up between them, boxes as rows."""
    x = n.input(1, 40, 56, 3)
    a = act(n, n.conv(act(n, n.conv(x, 10, 3, 2)), 20, 3, 2))
    b = act(n, n.conv(act(n, n.conv(a, 27, 3, 2)), 42, 3))
    up = n.resize(act(n, n.conv(b, 18)), n.shape(a)[1:3])
    c = act(n, n.conv(n.concat(up, a), 25, 3))
    for y in (n.conv(b, 21), n.conv(c, 21)):
        _, height, width, _ = n.shape(y)
        n.output(n.function("LOGISTIC", n.reshape(y, 1, 3 * height * width, 7)))


def u_net(n, up, size):
    """Twice down and up again, with skips."""
    x = n.input(1, *size, 3)
    a = n.conv(n.conv(x, 12, 3, act=RELU), 12, 3, act=RELU)
    b = n.conv(n.conv(n.pool(a), 20, 3, act=RELU), 20, 3, act=RELU)
    c = n.conv(n.pool(b, padding=VALID), 40, 3, act=RELU)
    d = n.conv(n.concat(up(n, c, b), b), 20, 3, act=RELU)
    n.output(n.function("LOGISTIC", n.conv(n.concat(up(n, d, a), a), 5)))


def by_transposed_convolution(n, x, like):
    return n.transposed(x, 16)


def by_nearest_neighbours(n, x, like):
    return n.conv(n.resize(x, n.shape(like)[1:3]), 16, 3, act=RELU)


def by_bilinear_resize(n, x, like):
    return n.conv(n.resize(x, n.shape(like)[1:3], "BILINEAR", halfPixelCenters=True), 16, 3, act=RELU)


def squeezed(n, x):
    """Squeeze and excite, with a hard sigmoid."""
    c = n.shape(x)[3]
    gate = n.binary("ADD", n.conv(n.conv(n.mean(x), c // 4, act=RELU), c), n.reals([3.0]), RELU6)
    return n.binary("MUL", x, n.binary("MUL", gate, n.reals([1 / 6])))


def mobilenet_v3(n):
    x = hard_swish(n, n.conv(n.input(1, 49, 49, 3), 12, 3, 2))
    x = n.conv(squeezed(n, n.depthwise(x, 3, 2, RELU)), 20)
    y = hard_swish(n, n.depthwise(hard_swish(n, n.conv(x, 56)), 5, 2))
    x = n.conv(squeezed(n, y), 27)
    y = squeezed(n, hard_swish(n, n.depthwise(hard_swish(n, n.conv(x, 75)), 5)))
    x = n.binary("ADD", x, n.conv(y, 27))
    x = hard_swish(n, n.conv(n.mean(hard_swish(n, n.conv(x, 70))), 100))
    n.output(n.function("SOFTMAX", n.reshape(n.conv(x, CLASSES), 1, CLASSES), beta=1.0))


def efficientnet_lite(n):
    x = n.conv(n.input(1, 45, 45, 3), 24, 3, 2, RELU6)
    x = n.conv(n.depthwise(x, 3, 1, RELU6), 12)
    for channels, kernel, stride in ((20, 3, 2), (20, 3, 1), (36, 5, 2), (36, 5, 1), (60, 3, 2)):
        y = n.conv(x, 6 * n.shape(x)[3], act=RELU6)
        y = n.conv(n.depthwise(y, kernel, stride, RELU6), channels)
        x = n.binary("ADD", x, y) if n.shape(x) == n.shape(y) else y
    x = n.mean(n.conv(x, 130, act=RELU6), keep=False)
    n.output(n.function("SOFTMAX", n.dense(x, CLASSES), beta=1.0))


def shuffled(n, x, groups):
    _, height, width, c = n.shape(x)
    x = n.transpose(n.reshape(x, 1, height, width, groups, c // groups), 0, 1, 2, 4, 3)
    return n.reshape(x, 1, height, width, c)


def shufflenet(n):
    x = n.pool(n.conv(n.input(1, 33, 33, 3), 24, 3, 2, RELU), kernel=3)
    a = n.conv(n.depthwise(x, 3, 2), 20, act=RELU)
    b = n.conv(n.depthwise(n.conv(x, 20, act=RELU), 3, 2), 20, act=RELU)
    x = shuffled(n, n.concat(a, b), 2)
    for _ in range(2):
        a, b = n.split(x, 2)
        b = n.conv(n.depthwise(n.conv(b, 20, act=RELU), 3), 20, act=RELU)
        x = shuffled(n, n.concat(a, b), 2)
    x = n.conv(shuffled(n, n.conv(x, 40, groups=4, act=RELU), 4), 40, 3, groups=2)
    n.output(n.conv(n.mean(x), CLASSES))


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


def norm(n, x):
    return n.binary("ADD", n.norm(x), n.bias(n.shape(x)[2]))


def scaled_norm(n, x):
    """The same in other parts, as Keras has them: the inverse root times the gains is a factor per element."""
    features = n.shape(x)[2]
    (mean, root), gains = n.moments(x), n.reals(1 + 0.1 * n.rng.normal(size=features))
    factor = n.binary("MUL", root, gains)
    return n.binary("ADD", n.binary("MUL", x, factor), n.binary("SUB", n.bias(features), n.binary("MUL", mean, factor)))


def heads(n, x, count):
    """(1, rows, features) as (1, heads, rows, features / heads)."""
    _, rows, features = n.shape(x)
    return n.transpose(n.reshape(x, 1, rows, count, features // count), 0, 2, 1, 3)


def attention(n, x, count, turned, mask=None):
    """Self-attention of `count` heads; with `turned` the keys are transposed by an operator of their own.

    `mask` is added to the scores.
    """
    _, rows, features = n.shape(x)
    width, scores = features // count, (1, count, rows, rows)
    q, k, v = (heads(n, n.dense(x, features), count) for _ in range(3))
    if turned:
        k = n.transpose(k, 0, 1, 3, 2)
    products = n.op("BATCH_MATMUL", [q, k], scores, adjY=not turned)
    products = n.binary("MUL", products, n.reals([1 / math.sqrt(width)]))
    weights = n.function("SOFTMAX", products if mask is None else n.binary("ADD", products, mask), beta=1.0)
    y = n.op("BATCH_MATMUL", [weights, v], (1, count, rows, width))
    return n.dense(n.reshape(n.transpose(y, 0, 2, 1, 3), 1, rows, features), features)


def gelu(n, x):
    return n.function("GELU", x)


def silu(n, x):
    return n.binary("MUL", x, n.function("LOGISTIC", x))


def of_keys(n, rows):
    """A mask that is an input: a number per key."""
    return n.input(1, 1, 1, rows)


def of_pairs(n, rows):
    """The same of each query and key."""
    return n.input(1, 1, rows, rows)


def of_bits(n, rows):
    """Keras' mask, made of an input that is 1 where a key counts: (1 - x) * -10."""
    bits = n.reshape(n.input(1, rows), 1, 1, 1, rows)
    return n.binary("MUL", n.binary("SUB", n.reals([1.0]), bits), n.reals([-10.0]))


@dataclass(frozen=True)
class Encoder:
    """An encoder of `layers` layers of (1, rows, features)."""

    rows: int
    features: int
    heads: int
    act: Callable = gelu
    layers: int = 1
    turned: bool = False
    norm: Callable = norm
    mask: Callable | None = None

    def __call__(self, n):
        x = n.input(1, self.rows, self.features)
        mask = None if self.mask is None else self.mask(n, self.rows)
        for _ in range(self.layers):
            x = n.binary("ADD", x, attention(n, self.norm(n, x), self.heads, self.turned, mask))
            h = self.act(n, n.dense(self.norm(n, x), 2 * self.features))
            x = n.binary("ADD", x, n.dense(h, self.features))
        n.output(x)


@dataclass(frozen=True)
class Case:
    """A network, its launches, kinds of operators on the host, and the least part of the MACs in the launches.

    `runs` are compared with LiteRT; `micro` tells whether TensorFlow Lite Micro gives the same bytes.
    """

    make: Callable
    launches: int = 1
    host: set[str] = field(default_factory=set)
    macs: float = 0.95
    runs: int = 3
    micro: bool = True
    config: str = "pynq_z1"
    contract: str = "double"
    options: dict = field(default_factory=dict)

    def path(self, n):
        """The path of the quantised network, made by `n`."""
        self.make(n)
        return n.quantise(**self.options)


def u(up, size=(24, 40)):
    return lambda n: u_net(n, up, size)


def encoder(*facts, host=(), options=(), **more):
    made = {"micro": False, "config": "pynq_z1_plus", "contract": "single"}
    return Case(Encoder(*facts, **more), 1, {*host}, 1.0, 2, options=dict(options), **made)


TABLES = {"Lookup"}
MEMORY = {"StridedSlice", "QDense", "Softmax"}
CASES = {
    "detector of leaky ReLU": Case(lambda n: detector(n, leaky), 1, TABLES),
    "detector of HARD_SWISH": Case(lambda n: detector(n, hard_swish), 7, TABLES),
    "U-Net, transposed convolutions": Case(u(by_transposed_convolution), 1, TABLES),
    "U-Net, nearest neighbours": Case(u(by_nearest_neighbours), 1, TABLES),
    "U-Net, nearest neighbours, odd sizes": Case(u(by_nearest_neighbours, (23, 29)), 3, TABLES | {"Take"}),
    "U-Net, bilinear": Case(u(by_bilinear_resize, (23, 29)), 3, TABLES | {"ResizeBilinear"}),
    "MobileNetV3": Case(mobilenet_v3, 8, TABLES | {"Softmax"}),
    "EfficientNet-Lite": Case(efficientnet_lite, 1, {"Softmax"}),
    "ShuffleNet": Case(shufflenet),
    "keyword spotter": Case(Streaming, 1, TABLES, 1, 12),
    "SVDF": Case(svdf, 1, MEMORY | {"Concat", "Dense16", "Filter16"}, 0.803, 12),
    "LSTM": Case(lstm, 1, MEMORY | {"Lstm", "LstmOutputs", "LstmCells"}, 0.498, 12, micro=False),
    "encoder": encoder(16, 32, 2),
    "encoder, scales per tensor": encoder(16, 32, 2, options={"per_channel_dense": False}),
    "encoder, silu, narrow heads": encoder(16, 32, 4, silu),
    "encoder, turned keys": encoder(20, 48, 3, turned=True),
    "encoder, other norms": encoder(16, 32, 2, norm=scaled_norm),
    "encoder, two layers": encoder(16, 32, 2, silu, 2),
    "encoder, long": encoder(128, 128, 4),
    "encoder, wide": encoder(16, 256, 4),
    "encoder, wide, silu": encoder(16, 256, 8, silu, options={"per_channel_dense": False}),
    "mask of keys": encoder(16, 32, 2, mask=of_keys),
    "mask of pairs": encoder(20, 32, 2, silu, mask=of_pairs),
    "mask of bits, narrow heads": encoder(16, 32, 4, mask=of_bits),
    "mask of keys, two layers": encoder(16, 48, 3, layers=2, mask=of_keys),
}
PLUS = {"config": "pynq_z1_plus", "launches": 1, "macs": 1.0}
ON_DEVICE = CASES | {
    "detector, tables": replace(CASES["detector of HARD_SWISH"], **PLUS),
    "MobileNetV3, tables": replace(CASES["MobileNetV3"], **PLUS, host={"Softmax"}),
    "encoder without tables": replace(
        CASES["encoder, two layers"], config="pynq_z1", launches=9, host={"Lookup", "Softmax"}
    ),
}
LARGE = {"long and wide": encoder(128, 256, 4), "long and wide, silu": encoder(128, 256, 8, silu)}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_reference_gives_the_bytes_of_litert(case, network, samples, golden, litert, assert_equal):
    path = case.path(network())
    given = samples(path, case.runs)
    assert_equal(golden(path, given, case.contract), litert(path, given))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.micro])
def test_the_reference_gives_the_bytes_of_tflite_micro(name, network, samples, golden, micro, assert_equal):
    path = CASES[name].path(network())
    given = samples(path, CASES[name].runs)
    assert_equal(golden(path, given), micro(path, given))


@pytest.mark.circuit
@pytest.mark.parametrize("case", ON_DEVICE.values(), ids=ON_DEVICE)
def test_the_device_gives_the_bytes_of_the_reference(case, network, samples, on_device):
    path = case.path(network())
    shares = on_device(path, samples(path, 5 if case.runs > 3 else 1), case.config, case.contract)
    assert (shares.launches, shares.host) == (case.launches, case.host)
    assert shares.macs >= case.macs - 0.0005


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_encoders(case, network, samples, golden, litert, assert_equal, on_device):
    path = case.path(network())
    given = samples(path, 2)
    assert_equal(golden(path, given, "single"), litert(path, given))
    shares = on_device(path, given, "pynq_z1_plus", "single")
    assert (shares.launches, shares.macs, shares.host) == (1, 1.0, set())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))  # which also is in the test's name
def test_random_encoders(seed, network, samples, golden, litert, assert_equal):
    n = network()
    n.rng = np.random.default_rng(seed)
    rows, (features, heads) = (16, 20, 40)[seed // 3 % 3], ((32, 2), (48, 3), (64, 4))[seed % 3]
    kinds = {"act": (gelu, silu)[seed % 2], "norm": (norm, scaled_norm)[seed // 2 % 2]}
    path = encoder(rows, features, heads, **kinds, options={"per_channel_dense": bool(seed % 5)}).path(n)
    given = samples(path)
    assert_equal(golden(path, given, "single"), litert(path, given))
