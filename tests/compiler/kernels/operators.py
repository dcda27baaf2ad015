"""Operators of every kind and shape: what the tests of kernels compile."""

from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.frontend.linear import reach
from tilewright.compiler.graph import tables

NONE = (0, 0, 0, 0)
SAME = (1, 1, 1, 1)


def tensor(name, shape, scale=0.1, zero_point=3, data=None, dtype="int8"):
    return g.Tensor(name, tuple(shape), dtype, scale, zero_point, data)


def random_data(shape, seed=3):
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


# movements


def joined(size, *channels, n=1, axis=1, constant=None):
    """A concatenation of images of so many channels, or of other axes; part number `constant` is one."""
    shapes = [[n, 20, *size] for _ in channels]
    for shape, count in zip(shapes, channels):
        shape[axis] = count
    data = [random_data(shape) if k == constant else None for k, shape in enumerate(shapes)]
    parts = tuple(tensor(f"x{k}", shape, data=values) for k, (shape, values) in enumerate(zip(shapes, data)))
    whole = [*shapes[0]]
    whole[axis] = sum(channels)
    return g.Concat("op", parts, tensor("y", whole), axis)


def padded(shape, *pads, value=-7):
    pads = ((0, 0), *pads)
    return g.Pad("op", (tensor("x", shape),), tensor("y", (n + sum(pair) for n, pair in zip(shape, pads))), pads, value)


def cut(shape, begin, end, strides=(1, 1, 1, 1)):
    found = (len(range(b, e, s)) for b, e, s in zip(begin, end, strides))
    return g.StridedSlice("op", (tensor("x", shape),), tensor("y", found), begin, strides[: len(shape)])


def shuffled(groups):
    order = tuple(np.arange(36 * groups).reshape(groups, -1).T.reshape(-1).tolist())
    shape = (1, len(order), 5, 6)
    return g.Take("op", (tensor("x", shape),), tensor("y", shape), ((), order, (), ()))


def repeated(size, factor):
    return () if factor == 1 else tuple(np.repeat(np.arange(size), factor).tolist())


def enlarged(shape, down, across):
    n, c, h, w = shape
    indices = (), (), repeated(h, down), repeated(w, across)
    return g.Take("op", (tensor("x", shape),), tensor("y", (n, c, h * down, w * across)), indices)


def copied(shape, count, across=1):
    _, c, h, w = shape
    indices = (0,) * count, (), (), repeated(w, across)
    return g.Take("op", (tensor("x", shape),), tensor("y", (count, c, h, w * across)), indices)


def heads(x_shape, y_shape, in_place=False):
    return g.Heads("op", (tensor("x", x_shape),), tensor("y", y_shape), in_place)


def gather(words, width, tokens=1):
    inputs = tensor("words", (words, width), data=random_data((words, width))), g.Tensor("token", (tokens,), "int32")
    return g.Gather("row", inputs, tensor("y", (tokens, width)), 0)


# element by element


def binary(kind, shape, other=None, scales=(0.05, 0.08, 0.09), points=(5, -17, 40), first=True, data=None, **clamp):
    """An operator on an image of `shape` and one of shape `other`, a constant where there is `data`, or it is True."""
    data = random_data(other) if data is True else data
    x, z = tensor("x", shape, scales[0], points[0]), tensor("z", shape, scales[2], points[2])
    y = tensor("y", other or shape, scales[1], points[1], None if data is None else data.astype(np.int8))
    return kind("op", (x, y) if first else (y, x), z, **clamp)


def gated(shape, points=(-9, -128), first=True, constant=None, **clamp):
    """An image times a value per channel."""
    other = constant or (*shape[:2], 1, 1)
    scales = 0.05, 1 / 256, 0.03
    return binary(g.Mul, shape, other, scales, (*points, 17), first, True if constant else None, **clamp)


def of_pixels(kind, shape, scales=(0.1, 0.02), points=(3, -7), first=True):
    """An image and a value per pixel."""
    return binary(kind, shape, (shape[0], 1, *shape[2:]), (*scales, 0.09), (*points, -20), first)


def of_pixels_and_constant(kind, first):
    """Values of pixels, and a constant of channels."""
    op = binary(kind, (2, 40, 1, 20), (1, 40, 1, 1), (0.1, 0.02, 0.09), (-7, 5, -20), not first, True)
    return replace(op, inputs=tuple(replace(t, shape=(2, 1, 1, 20)) if t.data is None else t for t in op.inputs))


def of_channels(kind, shape, scales=(0.1, 0.02), points=(3, -7), first=True, values=None):
    """An image and a constant per channel."""
    values = random_data((1, shape[1], 1, 1)) if values is None else values
    return binary(kind, shape, values.shape, (*scales, 0.09), (*points, -20), first, values)


def requantised(shape=(1, 20, 5, 7), scales=(0.05, 0.08), kind=g.Requantize, **clamp):
    return kind("op", (tensor("x", shape, scales[0], 5),), tensor("y", shape, scales[1], -17), **clamp)


def function(name, x, y):
    made = {
        "logistic": lambda: tables.table("logistic", x, y),
        "tanh": lambda: tables.table("tanh", x, y),
        "hard_swish": lambda: tables.hard_swish(x, y),
        "leaky_relu": lambda: tables.leaky_relu(0.1, x, y),
    }
    return g.Lookup(f"op_{y.name}", (x,), y, name, made[name]())


def looked_up(name, shape):
    return function(name, tensor("x", shape, 0.05), tensor("y", shape, 0.04, -7))


def leaky(alpha, scales=(0.1, 0.1), points=(-9, 17), shape=(1, 20, 5, 7)):
    x, y = (tensor(t, shape, s, z) for t, s, z in zip("xy", scales, points))
    table, slopes = tables.leaky_relu(alpha, x, y), tables.slopes(alpha, x, y)
    return g.LeakyRelu("op", (x,), y, "leaky_relu", table, slopes)


def prelu_of_channels(shape, slopes, scales=(0.0517, 0.0613), zero_points=(3, -40), low=-128):
    """Slopes of channels in turn."""
    x, y = (tensor(name, shape, *facts) for name, *facts in zip("xy", scales, zero_points))
    return g.NearestPrelu("op", (x,), y, np.resize(np.array(slopes, np.float32), shape[1]), low)


def prelu(scales):
    return binary(g.Prelu, (1, 20, 5, 7), (20, 1, 1), scales, (5, -9, 40), data=True)


# means, maxima and sizes of images


def mean(shape, axes=(2, 3), keep=False, scale=0.04, point=-7, kind=g.Mean, **contract):
    kept = [1 if k in axes else n for k, n in enumerate(shape)]
    reduced = kept if keep else [n for k, n in enumerate(shape) if k not in axes]
    return kind("op", (tensor("x", shape, 0.1, point),), tensor("y", reduced, scale, 11), axes, **contract)


def pool(kind, kernel, strides=(1, 1), pads=NONE, size=(9, 8), scale=0.1, channels=20, images=2, clamp=()):
    x = tensor("x", (images, channels, *size), 0.1, -7)
    y = tensor("y", (images, channels, *output_size(size, kernel, strides, pads)), scale, -7)
    return kind("op", (x,), y, kernel, strides, pads, *clamp)


def resized(shape, size, offset=None, half=False, corners=False):
    x, y = tensor("x", shape), tensor("y", (*shape[:2], *size))
    return g.ResizeBilinear("op", (x,), y, offset=offset, half_pixel_centers=half, align_corners=corners)


# layers


def linear(kind, x, y, weight, seed=0, ternary=0, limits=(-100, 110), **geometry):
    """A layer with random scales and biases, whose last `ternary` channels are ternary."""
    rng, o = np.random.default_rng(seed), len(weight)
    weight[o - ternary :] = np.sign(weight[o - ternary :]) * (abs(weight[o - ternary :]) > 60)
    scale = rng.uniform(0.001, 0.01, o).astype(np.float32)
    scale[o - ternary :] *= 60  # so that their outputs fill int8 as those of the others
    bias = rng.integers(-1000, 1000, o).astype(np.int32)
    geometry |= {"ternary": ternary} if ternary else {}
    return kind("op", (x,), y, weight, scale, bias, *limits, **geometry)


def conv(c, size, o, kernel=(3, 3), strides=(1, 1), pads=NONE, dilations=(1, 1), n=1, groups=1, ternary=0, seed=3):
    rng, spans = np.random.default_rng(seed), tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    x = tensor("x", (n, c, *size), 0.02, int(rng.integers(-128, 128)))
    y_scale = 0.02 * (c // groups * kernel[0] * kernel[1]) ** 0.5
    y = tensor("y", (n, o, *output_size(size, spans, strides, pads)), y_scale, -3)
    weight = random_data((o, c // groups, *kernel), seed)
    geometry = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return linear(g.QConv2d, x, y, weight, seed, ternary, **geometry)


def dense(n, c, o, ternary=0, seed=3, **facts):
    x, y = tensor("x", (n, c), 0.02, -9), tensor("y", (n, o), 0.02 * c**0.5, 5)
    return linear(g.QDense, x, y, random_data((o, c), seed), seed, ternary, **facts)


def wide(kernel=(3, 3), groups=1, strides=(1, 1), pads=SAME, dilations=(1, 1), low=-100):
    """A convolution whose weights need more than int8."""
    op = conv(32, (9, 8), 32, kernel, strides, pads, dilations, groups=groups)
    weight = np.random.default_rng(1).integers(-255, 255, op.weight.shape).astype(np.int16)
    return replace(op, weight=weight, low=low, float32_scale=True)


def transposed(n, c, size, o, kernel, strides, pads, seed=0):
    grown = [(size[k] - 1) * strides[k] + kernel[k] - pads[k] - pads[k + 2] for k in (0, 1)]
    x, y = tensor("x", (n, c, *size), 0.02, 9 - seed), tensor("y", (n, o, *grown), 0.5, 4)
    return linear(g.QConvTranspose2d, x, y, random_data((o, c, *kernel), seed), seed, strides=strides, pads=pads)


def sized(stride, kernel, size=(4, 3)):
    pads = max(0, kernel - stride) // 2
    return transposed(1, 19, size, 7, (kernel, kernel), (stride, stride), (pads, pads, 0, 0))


def sums_of_conv(c, size, o, kernel=(3, 3), strides=(1, 1), dilations=(1, 1), groups=1, n=1):
    x = tensor("x", (n, c, *size), 1.0, -128)
    out = output_size(size, reach(kernel, dilations), strides, NONE)
    y = g.Tensor("sums", (n, o, *out), "int32")
    return g.IntegerConv2d("conv", (x,), y, random_data((o, c // groups, *kernel)), strides, dilations, groups)


def sums_of_rows(n, features, columns):
    x, w = (
        tensor("x", (n, features), 1.0, -128),
        tensor("w", (features, columns), data=random_data((features, columns))),
    )
    return g.IntegerMatMul("rows", (x, w), g.Tensor("sums", (n, columns), "int32"))


def dense16(n=2, features=40, rows=21, scale=0.3, dtype="int16", bias=500, x=None):
    rng, x = np.random.default_rng(0), x or tensor("x", (n, features), 0.05, -9)
    y = g.Tensor("sums", (x.shape[0], rows), dtype, 0.01)
    weight = random_data((rows, x.shape[1]))
    return g.Dense16("dense", (x,), y, weight, rng.integers(-bias, bias, rows, np.int32), rng.uniform(0, scale, rows))


# products of matrices, softmax and norms


def matmul(shape, transposed, points=(0, 0), same=(), constant=False, **contract):
    """A product of (matrices, rows, columns, inner) as images; of operands in `same` there is one for all."""
    matrices, rows, columns, inner = shape
    count = [1 if k in same else matrices for k in (0, 1)]
    second = (count[1], inner, 1, columns) if transposed else (count[1], columns, 1, inner)
    x = tensor("x", (count[0], inner, 1, rows), 0.1, points[0])
    y = tensor("y", second, 0.1, points[1], random_data(second) if constant else None)
    return g.BatchMatMul(
        "op", (x, y), tensor("z", (matrices, columns, 1, rows), 0.6 * inner**0.5, -7), transposed, True, **contract
    )


def in_lanes(x, y, out, points=(0, 0, 0), ratio=0.0088043212890625, transposed=False):
    """A product of matrices, one per head, which is a lane."""
    tensors = (g.Tensor(name, (1, *shape), zero_point=z) for name, shape, z in zip("xyz", (x, y, out), points))
    *inputs, z = tensors
    return g.ShiftMatMul("op", tuple(inputs), z, ratio=ratio, transposed=transposed)


def scores(heads, positions, elements=4, points=(0, 0, 0), rows=1):
    shapes = (heads, rows, elements), (heads, positions, elements), (heads, rows, positions)
    return in_lanes(*shapes, points, transposed=True)


def means(heads, positions, elements=4, points=(0, 0, 0)):
    shapes = (heads, 1, positions), (heads, positions, elements), (heads, 1, elements)
    return in_lanes(*shapes, points, 51 / 65536)


def own(count, heads=16, columns=4, point=0):
    """Products of tokens with a matrix of each."""
    shapes = (heads, count, 1, 4), (heads, count, 4, columns), (heads, count, 1, columns)
    return in_lanes(*shapes, (point, 0, 0), 0.25)


def own_of_images(count, heads, columns, point):
    """The same, of tensors of four dimensions."""
    op = own(count, heads, columns, point)
    x, m = op.inputs
    first = g.Reshape("first", (g.Tensor("a", (1, heads, count, 4), zero_point=point),), x)
    second = g.Reshape("second", (g.Tensor("b", (1, heads, count * 4, columns)),), m)
    return first, second, op, g.Reshape("last", (op.output,), g.Tensor("c", (1, heads, count, columns)))


def softmax(shape, scale=0.1, beta=1.0, axis=1, steps=256, point=-128):
    x, y = tensor("x", shape, scale, 0), tensor("y", shape, 1 / steps, point)
    return g.Softmax("op", (x,), y, axis, beta)


NUMBERS = {"quadratic": 1, "linear": 84, "constant": 3713, "period": 62, "levels": 256}


def integer_softmax(shape, ratio=1.0, point=-128, **numbers):
    x, y = g.Tensor("x", shape), g.Tensor("y", shape, zero_point=point)
    return g.IntegerSoftmax("softmax", (x,), y, **(NUMBERS | numbers), ratio=ratio)


def integer_norm(shape, weight=3_931_285, shift=16, bias=None, point=0, low=-128, high=127):
    """A norm with weights, one for all elements or of each; of Deeploy's layer norm also biases."""
    values = [weight] if bias is None else [weight, bias]
    given = [np.broadcast_to(np.asarray(each, np.int32), shape[-1:]).copy() for each in values]
    constants = (g.Tensor(name, shape[-1:], "int32", data=data) for name, data in zip("wb", given))
    x = g.Tensor("x", shape, zero_point=point)
    return g.IntegerNorm("norm", (x, *constants), g.Tensor("y", shape), shift, low, high)


def layer_norm(shape):
    rng = np.random.default_rng(5)
    weight, bias = (rng.integers(-4_000_000, 4_000_000, shape[-1]) for _ in range(2))
    return integer_norm(shape, weight, bias=bias)


# layers of language models, whose zero points are 0

POSITION = g.Tensor("position", (1,), "int32")


def plain(name, *shape, scale=0.05):
    return g.Tensor(name, shape, scale=scale)


def rms_norm(shape, gain=None):
    gain = np.linspace(0, 3, shape[1]) if gain is None else gain
    return g.RmsNorm("norm", (plain("x", *shape),), plain("y", *shape, scale=0.02), gain)


def rotation(chunks, half, positions=32, tokens=1):
    angles = np.arange(positions)[:, None] * np.linspace(0.01, 1, half)
    cosine, sine = (np.round(f(angles) * 2**14).astype(np.int16) for f in (np.cos, np.sin))
    x, y = (plain(name, tokens, chunks * 2 * half) for name in "xy")
    return g.Rotate("rotate", (x, POSITION), y, cosine, sine)


def write_rows(wide, size, tokens=1):
    inputs = plain("cache", 1, wide, size, 1), plain("row", tokens, wide), POSITION
    return g.WriteRows("rows", inputs, plain("written", 1, wide, size, 1))


def write_columns(wide, positions, block=16, tokens=1):
    first = write_rows(wide, block, tokens)
    inputs = plain("values", 1, positions, wide, 1), first.output, POSITION
    return first, g.WriteColumns("columns", inputs, plain("turned", 1, positions, wide, 1), tokens)


def read(wide, tokens=1):
    """Something to read: a cache is no output."""
    return g.RmsNorm("norm", (plain("row", tokens, wide),), plain("y", tokens, wide), np.ones(wide))


def groups(count, each, lanes):
    found = [group for group in range(count) for _ in range(each)]
    return found + [-1] * (lanes - len(found))


HEADS = {  # chunks, groups of keys, groups of values, elements of a head
    "two queries of each of four": (2, groups(4, 4, 16), groups(4, 8, 32), 8),
    "heads of 2": (3, groups(5, 1, 16), groups(5, 2, 16), 2),
    "heads of 48": (1, groups(6, 24, 144), groups(6, 48, 288), 48),
    "one group": (4, groups(1, 4, 16), groups(1, 8, 16), 8),
    "one query": (1, groups(1, 8, 8), groups(1, 16, 16), 16),
    "half a key of 8 lanes": (2, groups(2, 4, 8), groups(2, 8, 16), 8),
    "one chunk of any width": (1, groups(3, 1, 3), groups(3, 2, 16), 2),
}


def attention(kind, context, seen, scale: Any = 0.05, tokens: Any = 1):
    """Attention of heads as `HEADS` has them by name, or as these are given."""
    chunks, keys, values, head = HEADS[kind] if isinstance(kind, str) else kind
    wide, deep = 2 * len(keys), len(values)
    shapes = (tokens, chunks * wide), (1, wide, context, 1), (1, context, deep, 1)
    q, k, v = (plain(n, *s, scale=c) for n, s, c in zip(("q", "k", "v"), shapes, (scale, 0.05, 0.05)))
    y = plain("y", tokens, chunks * deep, scale=0.03)
    return g.Attention("attention", (q, k, v, POSITION), y, tuple(keys), tuple(values), head, seen)
