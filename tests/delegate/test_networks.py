"""Whole networks through LiteRT's interpreter with the delegate: every byte."""

from pathlib import Path

import numpy as np
import pytest

from tilewright.apps.delegate.delegate import RUNTIMES
from tilewright.compiler.frontend.tflite import import_tflite
from tilewright.compiler.graph.reference import run as reference_run
from tilewright.delegate import TilewrightDelegate

pytestmark = pytest.mark.circuit

SHARED = Path(__file__).parents[3] / "shared"
NETWORKS = ("resnet8", "kws", "vww", "ad01")
CLAIMS = {
    "all": None,
    "convolutions": {"CONV_2D"},
    "three kinds": {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD"},
}
# (nodes taken, partitions) by network and claim; the others are 0
TAKEN = {
    ("resnet8", "all"): (16, 1),
    ("resnet8", "convolutions"): (9, 3),
    ("resnet8", "three kinds"): (12, 1),
    ("kws", "all"): (13, 1),
    ("kws", "convolutions"): (5, 5),
    ("kws", "three kinds"): (9, 1),
    ("vww", "all"): (31, 1),
    ("vww", "convolutions"): (14, 14),
    ("vww", "three kinds"): (27, 1),
    ("ad01", "all"): (10, 1),
}


@pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="../shared/models is not there")
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_golden_bytes(name, claim, interpreter, run):
    """The golden values are TensorFlow Lite Micro's. Dense layers that stay with LiteRT round as LiteRT's."""
    path = SHARED / "models" / f"{name}_int8.tflite"
    delegate = TilewrightDelegate(path, claim=CLAIMS[claim], runtime="tflm")
    mine, reference = interpreter(path, delegate), interpreter(path)
    report = delegate.report()
    assert (report.operators - len(report.left), len(report.partitions)) == TAKEN.get((name, claim), (0, 0))
    with np.load(SHARED / "inputs" / f"{name}_int8.npz") as data:
        for x, y in zip(data["inputs"], data["outputs"]):
            expected = y if report.partitions else run(reference, x)[0]
            np.testing.assert_array_equal(run(mine, x)[0].reshape(expected.shape), expected)


def encoder(n, rows=16, features=32, heads=2):
    """One layer of self-attention and one of two dense layers, as a transformer's encoder has them."""
    x, width = n.input(1, rows, features), features // heads

    def by_head(t):
        return n.transpose(n.reshape(n.dense(t, features), 1, rows, heads, width), 0, 2, 1, 3)

    y = n.norm(x)
    q, k, v = by_head(y), by_head(y), by_head(y)
    scores = n.op("BATCH_MATMUL", [q, k], (1, heads, rows, rows), adjY=True)
    weights = n.function("SOFTMAX", n.binary("MUL", scores, n.reals([width**-0.5])), beta=1.0)
    mixed = n.op("BATCH_MATMUL", [weights, v], (1, heads, rows, width))
    x = n.binary("ADD", x, n.dense(n.reshape(n.transpose(mixed, 0, 2, 1, 3), 1, rows, features), features))
    h = n.function("GELU", n.dense(n.norm(x), 2 * features))
    n.output(n.binary("ADD", x, n.dense(h, features)))
    return n.quantise()


@pytest.mark.parametrize("claim", [None, {"FULLY_CONNECTED"}, {"FULLY_CONNECTED", "BATCH_MATMUL", "ADD"}])
def test_an_encoder_equals_the_reference_kernels(network, equal, claim):
    path = encoder(network())
    delegate = TilewrightDelegate(path, claim=claim)
    equal(path, delegate)
    assert sum(part.macs for part in delegate.report().partitions) > 100_000


# expansion, channels, how often, stride of the first
BLOCKS = ((1, 8, 1, 1), (6, 16, 2, 2), (6, 16, 2, 2), (6, 24, 2, 2), (6, 32, 1, 1), (6, 56, 1, 2))


def mobilenetv2(n, size=64, classes=40):
    """MobileNetV2 of width 0.35 with fewer repetitions: inverted bottlenecks, with sums where shapes are equal."""
    x = n.conv(n.input(1, size, size, 3), 16, 3, stride=2, act=3)
    for factor, channels, count, first in BLOCKS:
        for k in range(count):
            stride, c = first if k == 0 else 1, n.shape(x)[3]
            y = n.conv(x, factor * c, act=3) if factor > 1 else x
            y = n.conv(n.depthwise(y, stride=stride, act=3), channels)
            x = n.binary("ADD", x, y) if stride == 1 and c == channels else y
    y = n.mean(n.conv(x, 112, act=3), keep=False)
    n.output(n.function("SOFTMAX", n.dense(y, classes), beta=1.0))
    return n.quantise(samples=4)


@pytest.mark.parametrize("claim", CLAIMS)
def test_mobilenetv2_equals_the_reference_kernels(network, equal, claim):
    path = mobilenetv2(network())
    delegate = TilewrightDelegate(path, claim=CLAIMS[claim])
    equal(path, delegate, runs=1)
    report = delegate.report()
    assert (len(report.partitions) == 1) == (claim != "convolutions") and report.cycles > 40_000


def test_dense_layers_round_as_the_runtimes(network, interpreter, run):
    """Once as LiteRT, which its kernels say, or twice as TensorFlow Lite Micro, which the golden interpreter says."""
    n = network()
    x = n.input(1, 96)
    for _ in range(4):
        x = n.dense(x, 96)
    n.output(x)
    path = n.quantise(per_channel_dense=False)
    graph, rng = import_tflite(path), np.random.default_rng(3)
    reference, mine = interpreter(path), [interpreter(path, TilewrightDelegate(path, runtime=r)) for r in RUNTIMES]
    apart = 0
    for _ in range(20):
        x = rng.integers(-128, 128, (1, 96)).astype(np.int8)
        (litert,), (micro,) = (run(each, x) for each in mine)
        np.testing.assert_array_equal(litert, run(reference, x)[0])
        (golden,) = reference_run(graph, {graph.inputs[0].name: x})[0].values()
        np.testing.assert_array_equal(micro, golden)
        apart += int((litert != micro).sum())
    assert apart > 0
