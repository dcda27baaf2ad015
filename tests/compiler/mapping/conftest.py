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
