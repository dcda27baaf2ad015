"""Families of image networks, quantised by LiteRT's own quantiser: exact on the device, and where each part runs.

LiteRT is its reference kernels (resolver BUILTIN_REF), contract double.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

RELU, RELU6, VALID = 1, 3, 1
CLASSES = 11


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


@dataclass(frozen=True)
class Case:
    """A network, its launches, and kinds of operators on the host."""

    make: Callable
    launches: int = 1
    host: set[str] = field(default_factory=set)


def u(up, size=(24, 40)):
    return lambda n: u_net(n, up, size)


TABLES = {"Lookup"}
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
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def path(case, network):
    n = network()
    case.make(n)
    return n.quantise()


def test_the_reference_gives_the_bytes_of_litert(path, samples, golden, litert, assert_equal):
    given = samples(path)
    assert_equal(golden(path, given), litert(path, given))


def test_the_reference_gives_the_bytes_of_tflite_micro(path, samples, golden, micro, assert_equal):
    given = samples(path)
    assert_equal(golden(path, given), micro(path, given))


def test_the_device_gives_the_bytes_of_the_reference(case, path, samples, on_device):
    shares = on_device(path, samples(path, 1))
    assert (shares.launches, shares.host) == (case.launches, case.host)
    assert shares.macs >= 0.95


@pytest.mark.parametrize("case", ["detector of HARD_SWISH", "MobileNetV3"], indirect=True)
def test_tables_on_the_device_make_it_one_launch(path, samples, on_device):
    shares = on_device(path, samples(path, 1), "pynq_z1_plus")
    assert shares.launches == 1 and shares.macs == 1
