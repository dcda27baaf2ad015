"""Float networks in the making, quantised by LiteRT's own quantiser, and what is asserted of the result."""

import math
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_for, compile_graph
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify

SAME, VALID = 0, 1
VIEWS = {"Reshape", "Transpose"}  # many of which move no byte


class FloatNetwork:
    """A float32 network in the making: methods append operators, and return tensor numbers.

    Images are (1, H, W, C); weights are random and keep the spread of the values.
    """

    def __init__(self, m):
        self.m, self.rng = m, m.rng

    def input(self, *shape):
        return self.m.input(shape, None, dtype="FLOAT32")

    def output(self, *tensors):
        for t in tensors:
            self.m.output(t)

    def shape(self, t):
        return tuple(int(n) for n in self.m.graph.tensors[t].shape)

    def op(self, kind, inputs, shape, **options):
        return self.m.node(kind, inputs, [self.m.tensor(shape, dtype="FLOAT32")], **options)

    def numbers(self, *values):
        return self.m.const(np.array(values, np.int32))

    def variable(self, *shape):
        """A tensor that a recurrent operator keeps."""
        t = self.m.tensor(shape, dtype="FLOAT32")
        self.m.graph.tensors[t].isVariable = True
        return t

    def reals(self, values):
        return self.m.const(np.asarray(values, np.float32))

    def weights(self, *shape, fan_in):
        return self.reals(self.rng.normal(size=shape) * 1.5 / math.sqrt(fan_in))

    def bias(self, n):
        return self.reals(self.rng.normal(size=n) * 0.2)

    def window(self, x, kernel, stride, padding):
        (_, *image, _), kernel = self.shape(x), np.broadcast_to(kernel, 2)
        return [(n if padding == SAME else n - k + 1) for n, k in zip(image, kernel)], {
            "padding": padding,
            "strideH": stride,
            "strideW": stride,
        }

    def conv(self, x, channels, kernel=1, stride=1, act=0, groups=1, padding=SAME, dilation=1):
        fits, options = self.window(x, kernel, stride, padding)
        kh, kw = np.broadcast_to(kernel, 2)
        c = self.shape(x)[3] // groups
        inputs = [x, self.weights(channels, kh, kw, c, fan_in=kh * kw * c), self.bias(channels)]
        options |= {"fusedActivationFunction": act, "dilationHFactor": dilation, "dilationWFactor": dilation}
        return self.op("CONV_2D", inputs, (1, *(-(-n // stride) for n in fits), channels), **options)

    def depthwise(self, x, kernel=3, stride=1, act=0, padding=SAME):
        fits, options = self.window(x, kernel, stride, padding)
        c, (kh, kw) = self.shape(x)[3], np.broadcast_to(kernel, 2)
        inputs = [x, self.weights(1, kh, kw, c, fan_in=kh * kw), self.bias(c)]
        options |= {"fusedActivationFunction": act, "depthMultiplier": 1}
        return self.op("DEPTHWISE_CONV_2D", inputs, (1, *(-(-n // stride) for n in fits), c), **options)

    def transposed(self, x, channels, kernel=2):
        _, h, w, c = self.shape(x)
        weights = self.weights(channels, kernel, kernel, c, fan_in=kernel * kernel * c / 4)
        shape = (1, 2 * h, 2 * w, channels)
        inputs = [self.numbers(*shape), weights, x, self.bias(channels)]
        return self.op("TRANSPOSE_CONV", inputs, shape, padding=SAME, strideH=2, strideW=2)

    def dense(self, x, units, act=0):
        features = self.shape(x)[-1]
        inputs = [x, self.weights(units, features, fan_in=features), self.bias(units)]
        options = {"fusedActivationFunction": act, "keepNumDims": len(self.shape(x)) > 2}
        return self.op("FULLY_CONNECTED", inputs, (*self.shape(x)[:-1], units), **options)

    def pool(self, x, kind="MAX_POOL_2D", kernel=2, stride=2, padding=SAME):
        fits, options = self.window(x, kernel, stride, padding)
        shape = (1, *(-(-n // stride) for n in fits), self.shape(x)[3])
        return self.op(kind, [x], shape, filterHeight=kernel, filterWidth=kernel, **options)

    def function(self, kind, x, **options):
        return self.op(kind, [x], self.shape(x), **options)

    def binary(self, kind, x, y, act=0):
        shape = np.broadcast_shapes(self.shape(x), self.shape(y))
        return self.op(kind, [x, y], shape, fusedActivationFunction=act)

    def mean(self, x, keep=True):
        n, _, _, c = self.shape(x)
        return self.op("MEAN", [x, self.numbers(1, 2)], (n, 1, 1, c) if keep else (n, c), keepDims=keep)

    def moments(self, x):
        """The mean of each row, and the inverse root of its variance."""
        _, rows, features = self.shape(x)
        mean = self.op("MEAN", [x, self.numbers(2)], (1, rows, 1), keepDims=True)
        squares = self.op("SQUARED_DIFFERENCE", [x, mean], (1, rows, features))
        variance = self.op("MEAN", [squares, self.numbers(2)], (1, rows, 1), keepDims=True)
        return mean, self.function("RSQRT", self.binary("ADD", variance, self.reals([1e-5])))

    def norm(self, x):
        """A layer norm in its parts, without the bias."""
        (mean, root), gains = self.moments(x), self.reals(1 + 0.1 * self.rng.normal(size=self.shape(x)[2]))
        return self.binary("MUL", self.binary("MUL", self.binary("SUB", x, mean), root), gains)

    def concat(self, *inputs, axis=3):
        shape = list(self.shape(inputs[0]))
        shape[axis] = sum(self.shape(t)[axis] for t in inputs)
        return self.op("CONCATENATION", inputs, shape, axis=axis)

    def resize(self, x, size, kind="NEAREST_NEIGHBOR", **options):
        n, _, _, c = self.shape(x)
        return self.op(f"RESIZE_{kind}", [x, self.numbers(*size)], (n, *size, c), **options)

    def reshape(self, x, *shape):
        return self.op("RESHAPE", [x, self.numbers(*shape)], shape)

    def transpose(self, x, *axes):
        return self.op("TRANSPOSE", [x, self.numbers(*axes)], [self.shape(x)[a] for a in axes])

    def split(self, x, parts):
        *around, c = self.shape(x)
        made = [self.m.tensor((*around, c // parts), dtype="FLOAT32") for _ in range(parts)]
        self.m.node("SPLIT", [self.numbers(len(around)), x], made, numSplits=parts)
        return made

    def quantise(self, samples=8, name="int8.tflite", **kinds):
        """The path of the network in int8; `samples` random inputs calibrate it."""
        path = self.m.save("float.tflite")
        shapes = [self.shape(t) for t in self.m.graph.inputs]
        given = [[self.rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(samples)]
        int8 = self.m.folder / name
        int8.write_bytes(quantised(path.read_bytes(), given, **kinds))
        return int8


def quantised(model, samples, ends="int8", per_channel=True, per_channel_dense=True):
    """The bytes of a float32 model in int8; `ends` is the type of its inputs and outputs."""
    calibration = import_module("ai_edge_litert._pywrap_tensorflow_lite_calibration_wrapper")
    prepared = calibration.AddIntermediateTensors(model)  # which the wrapper reads later, and does not keep
    wrapper = calibration.CalibrationWrapper(prepared, [], [])
    wrapper.Prepare([list(x.shape) for x in samples[0]])
    for sample in samples:
        wrapper.FeedTensor(sample)
    end, activations, biases = (np.dtype(name).num for name in (ends, "int8", "int32"))
    float_allowed = False
    return wrapper.QuantizeModel(end, end, float_allowed, activations, biases, not per_channel, not per_channel_dense)


@pytest.fixture
def network(tflite):
    """A maker of `FloatNetwork`s that are saved in the test's folder."""
    return lambda *args, **kwargs: FloatNetwork(tflite(*args, **kwargs))


@pytest.fixture
def samples():
    """Random inputs of the file at a path, in its order."""

    def make(path, count=3):
        rng, inputs = np.random.default_rng(11), import_tflite(path).inputs
        return [[rng.integers(-128, 128, t.shape).astype(np.int8) for t in inputs] for _ in range(count)]

    return make


@pytest.fixture
def assert_equal():
    """Asserts the same bytes in every output of every run, and outputs that depend on the inputs."""

    def check(found, expected):
        for column, wanted in zip(zip(*found), zip(*expected), strict=True):
            assert len(np.unique(np.stack(wanted))) > 2
            np.testing.assert_array_equal(np.stack(column), np.stack(wanted))

    return check


@dataclass(frozen=True)
class Shares:
    """What a compiled network runs where: launches, the part of its MACs in them, kinds of operators on the host."""

    launches: int
    macs: float
    host: set[str]


@pytest.fixture
def on_device():
    """Runs a network on the model, operator by operator, exactly as the golden interpreter; gives its `Shares`."""

    def run(path, given, config="pynq_z1", contract="double"):
        graph, cfg = import_tflite(path), PRESETS[config]
        compiled = compile_for(graph, cfg, contract)
        for executable in (compiled.executable, compile_graph(graph, cfg, contract, every_value=True)):
            state = reference.initial_state(graph)
            with Loaded(executable, open_device("model", cfg)) as loaded:
                for x in given:
                    inputs = {t.name: value for t, value in zip(graph.inputs, x)}
                    found = compare(graph, inputs, loaded.run(inputs), contract, state)
                    assert found.difference is None, str(found.difference)
        assert found.operators == len(graph.ops)
        launches = compiled.executable.launches
        alone = [choice for choice in compiled.assignment.choices if not isinstance(choice.module, Accelerator)]
        host = {type(op).__name__ for choice in alone for op in choice.ops} - VIEWS
        for step in launches:
            verify(step.launch)
        return Shares(len(launches), sum(step.macs for step in launches) / graph.macs, host)

    return run
