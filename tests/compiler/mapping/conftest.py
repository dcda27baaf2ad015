"""Makes small networks whose weights are ternary, with all that changes or follows an order of channels."""

import numpy as np
import pytest

from tilewright.compiler import graph as g


class Net:
    """A network in the making: every method appends an operator and returns its output."""

    def __init__(self, seed=0, shape=(1, 3, 8, 8)):
        self.rng, self.ops = np.random.default_rng(seed), []
        self.x = self.tensor("x", *shape)

    def tensor(self, name, *shape):
        return g.Tensor(name, shape, scale=float(self.rng.uniform(0.02, 0.1)), zero_point=int(self.rng.integers(-9, 9)))

    def add(self, kind, inputs, shape, *args, scale_of=None, **kwargs):
        """An operator `kind` of a name with its number; its output is quantised as `scale_of`, if given."""
        y = self.tensor(f"t{len(self.ops)}", *shape)
        if scale_of is not None:
            y = g.Tensor(y.name, shape, scale=scale_of.scale, zero_point=scale_of.zero_point)
        name = f"{kind.__name__.lower()}{len(self.ops)}"
        self.ops.append(kind(name, tuple(inputs), y, *args, **kwargs))
        return y

    def parameters(self, channels, fan, magnitude=1, ternary=True):
        """(weights, scales, biases); ternary ones are -k, 0 and k of a k below `magnitude` + 1 for each channel."""
        if ternary:
            weight = self.rng.integers(-1, 2, (channels, *fan)) * self.rng.integers(
                1, magnitude + 1, (channels,) + (1,) * len(fan)
            )
        else:
            weight = self.rng.integers(-100, 100, (channels, *fan))
        size = max(1.0, float(np.abs(weight).mean()))
        scale = self.rng.uniform(0.5, 2.0, channels) / (size * np.sqrt(np.prod(fan)))
        return weight.astype(np.int8), scale.astype(np.float32), self.rng.integers(-200, 200, channels).astype(np.int32)

    def conv(self, x, channels, kernel=3, stride=1, **kinds):
        n, c, h, w = x.shape
        pad, size = kernel // 2, [(k - 1) // stride + 1 for k in (h, w)]
        parameters = self.parameters(channels, (c, kernel, kernel), **kinds)
        facts = {"strides": (stride, stride), "pads": (pad,) * 4}
        return self.add(g.QConv2d, [x], (n, channels, *size), *parameters, **facts)

    def depthwise(self, x):
        c = x.shape[1]
        return self.add(g.QConv2d, [x], x.shape, *self.parameters(c, (1, 3, 3)), pads=(1,) * 4, groups=c)

    def dense(self, x, channels):
        return self.add(g.QDense, [x], (x.shape[0], channels), *self.parameters(channels, (x.shape[1],)))

    def total(self, x, y):
        return self.add(g.Add, [x, y], x.shape)

    def flat(self, x, nhwc=False):
        """The image as a row, its channels the outermost or the innermost."""
        n, c, h, w = x.shape
        if nhwc:
            x = self.add(g.Transpose, [x], (n, h, w, c), (0, 2, 3, 1), scale_of=x)
        return self.add(g.Reshape, [x], (n, c * h * w), scale_of=x)

    def graph(self, *outputs):
        return g.Graph("net", (self.x,), outputs or (self.ops[-1].output,), tuple(self.ops))


@pytest.fixture
def net():
    """A maker of `Net`s."""
    return Net


def _image(net, kinds, x):
    """One more operator on the image `x`."""
    n, c, h, w = x.shape
    kind = kinds[net.rng.integers(len(kinds))]
    if kind == "conv":
        return net.conv(x, int(net.rng.integers(2, 12)), kernel=int(net.rng.choice([1, 3])))
    if kind == "residual":
        return net.total(x, net.conv(net.conv(x, int(net.rng.integers(2, 9))), c))
    if kind == "project":
        return net.total(net.conv(x, 6, 1), net.depthwise(net.conv(x, 6)))
    if kind == "depthwise":
        return net.depthwise(x)
    if kind == "lookup":
        table = net.rng.integers(-128, 128, 256).astype(np.int8)
        return net.add(g.Lookup, [x], x.shape, "random", table)
    if kind == "constant":
        y = net.tensor(f"k{len(net.ops)}", c, 1, 1)
        data = net.rng.integers(-128, 128, (c, 1, 1)).astype(np.int8)
        return net.add(g.Mul, [x, g.Tensor(y.name, y.shape, scale=y.scale, data=data)], x.shape)
    if kind == "scaled":
        mean = net.add(g.Mean, [x], (n, c, 1, 1), (2, 3))
        return net.add(g.Mul, [x, net.conv(mean, c, 1)], x.shape)
    if kind == "pool":
        return net.add(g.MaxPool, [x], (n, c, h, w), (3, 3), pads=(1,) * 4, scale_of=x)
    if kind == "concat":
        y = net.conv(x, int(net.rng.integers(2, 6)))
        z = g.Tensor(f"z{len(net.ops)}", y.shape, scale=y.scale, zero_point=y.zero_point)
        x = net.add(g.Requantize, [x], x.shape, scale_of=z)
        return net.add(g.Concat, [x, y], (n, c + y.shape[1], h, w), 1, scale_of=y)
    if kind == "slice":
        return net.add(g.StridedSlice, [x], (n, c - 1, h, w), (0, 1, 0, 0), (1,) * 4, scale_of=x) if c > 1 else x
    assert kind == "pad"
    pads = ((0, 0), (0, 0), (1, 0), (0, 1))
    return net.add(g.Pad, [x], (n, c, h + 1, w + 1), pads, x.zero_point, scale_of=x)


KINDS = "conv residual residual project depthwise lookup constant scaled pool concat slice pad".split()


@pytest.fixture
def random_net():
    """A maker of random networks: images, then a row of classes."""

    def make(seed, layers=6):
        net = Net(seed, (int(seed % 2) + 1, 3, 5, 6))
        x = net.conv(net.x, 6)
        others = [x]
        for _ in range(layers):
            x = _image(net, KINDS, x)
            others.append(x)
        if seed % 3 == 0:
            return net.graph(x, others[len(others) // 2]) if x is not others[len(others) // 2] else net.graph(x)
        row = net.flat(x, nhwc=bool(seed % 2))
        row = net.dense(net.dense(row, 7), 5)
        if seed % 5 == 0:
            row = net.add(g.Reshape, [row], (row.shape[0], 5, 1, 1), scale_of=row)
        return net.graph(row)

    return make
