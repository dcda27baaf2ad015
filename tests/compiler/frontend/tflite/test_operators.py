"""Operators of .tflite files, a row each: the reference gives the bytes of LiteRT's reference kernels."""

import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated
from flatbuffers import flexbuffers

from tilewright.compiler.frontend.tflite.file import read, relabelled
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import QConv2d, Recode, Reshape, Transpose, reference
from tilewright.hw.errors import FileError, UnsupportedError

schema: Any = schema_py_generated  # whose own types leave arrays out

PLAIN = ("FLOAT32", "INT32", "BOOL")
SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3
WINDOWS = {"padding": SAME, "strideH": 2, "strideW": 2}
IMAGE = (1, 3, 4, 5)


def q(*shape, s=0.05, z=-3, dtype="INT8"):
    """An input of the network."""
    return lambda m: m.input(shape, None if dtype in PLAIN else s, z, dtype=dtype)


def t(*shape, s=0.05, z=-3, dtype="INT8"):
    """A computed tensor."""
    return lambda m: m.tensor(shape, None if dtype in PLAIN else s, z, dtype)


def real(*shape, z=-3):
    """An int8 input, dequantised."""
    return lambda m: m.node("DEQUANTIZE", [m.input(shape, 0.05, z)], [m.tensor(shape, dtype="FLOAT32")])


def k(shape, s=0.05, z=-3, low=-128, high=128, dtype: type = np.int8):
    """A random constant."""
    return lambda m: m.const(m.rng.integers(low, high, shape).astype(dtype), s, z)


def either(constant, shape, s=0.05, z=-3):
    return k(shape, s, z) if constant else q(*shape, s=s, z=z)


def floats(*shape):
    """A random float32 constant."""
    return lambda m: m.const(m.rng.normal(size=shape).astype(np.float32))


def ints(*values):
    """int32 constants."""
    return [lambda m, v=v: m.const(np.array(v, np.int32)) for v in values]


def tf(*shape):
    return t(*shape, dtype="FLOAT32")


def made(m, kind, inputs, outputs, options):
    """The tensors that an operator on `inputs` writes."""
    given = [make if isinstance(make, int) else make(m) for make in inputs]
    written = [make(m) for make in (outputs if isinstance(outputs, list) else [outputs])]
    m.node(kind, given, written, **options)
    return written


def reduced(shape, axes, keep):
    gone = {a % len(shape) for a in axes}
    return [1 if k in gone else n for k, n in enumerate(shape) if keep or k not in gone]


def pooled(kernel, strides, padding):
    return [-(-(n if padding == SAME else n - k + 1) // s) for n, k, s in zip((9, 8), kernel, strides)]


# kind, inputs, outputs, options
ROWS = [
    (kind, [q(*a, s=s, z=11), either(constant, b, r, -20)], t(*a, s=0.06, z=-7),
     {"fusedActivationFunction": RELU6 if constant else NONE})
    for kind in ("ADD", "SUB", "MUL")
    for a, b, constant in [
        (IMAGE, IMAGE, False), (IMAGE, (5,), True), (IMAGE, (1, 1, 1, 5), True), (IMAGE, (4, 5), False),
        ((2, 7), (2, 7), False), ((2, 7), (1,), False),
    ]
    for s, r in ((0.05, 0.031), (0.02, 0.07))
]  # fmt: skip
ROWS += [
    (kind, [q(1, 9, 8, 3)], t(1, *pooled(kernel, strides, padding), 3),
     {"padding": padding, "strideH": strides[0], "strideW": strides[1], "fusedActivationFunction": activation,
      "filterHeight": kernel[0], "filterWidth": kernel[1]})
    for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
    for kernel, strides in [((3, 3), (1, 1)), ((3, 2), (2, 1)), ((4, 3), (2, 3))]
    for padding, activation in [(SAME, NONE), (SAME, RELU6), (VALID, RELU)]
]  # fmt: skip
ROWS += [
    ("MEAN", [q(*shape), *ints(axes)], t(*reduced(shape, axes, keep), s=s, z=z), {"keepDims": keep})
    for shape, axes, keep in [
        ((1, 5, 7, 4), (1, 2), True), ((1, 5, 7, 4), (1, 2), False), ((1, 5, 7, 4), (3,), True),
        ((1, 5, 7, 4), (1,), False), ((1, 5, 7, 4), (-1,), False), ((2, 9), (1,), True), ((2, 3, 4), (0, 2), False),
    ]
    for s, z in ((0.013, 6), (0.05, -3))
]  # fmt: skip
ROWS += [
    (kind, [q(*shape), *ints(axes)], t(*reduced(shape, axes, keep)), {"keepDims": keep})
    for kind in ("REDUCE_MAX", "REDUCE_MIN")
    for shape, axes in [((2, 3, 4, 5), (1, 2)), ((2, 3, 4, 5), (3,)), ((2, 9), (-1,)), ((3, 2, 4), (0,))]
    for keep in (True, False)
]
ROWS += [  # LiteRT's reference kernel of int8 sums is wrong: it cuts each step to int8
    ("SUM", [q(2, 5, 7, 6, s=0.013, z=100, dtype="UINT8"), *ints(axes)],
     t(*reduced((2, 5, 7, 6), axes, True), s=s, z=z, dtype="UINT8"), {"keepDims": True})
    for s, z in [(0.2, 132), (0.05, 125), (0.05, 188)]
    for axes in [(1, 2), (3,), (1,)]
]  # fmt: skip
ROWS += [
    ("SOFTMAX", [q(*shape, s=s)], t(*shape, s=1 / 256, z=-128), {"beta": beta})
    for s, beta in [(0.05, 1.0), (0.7, 1.0), (0.1, 2.5)]
    for shape in [(4, 12), (1, 3, 3, 7), (2, 1, 3, 2, 5)]
]
ROWS += [
    (kind, [q(2, 200, s=s, z=3)], t(2, 200, s=r, z=z), options)
    for kind, r, z, options in [
        ("LOGISTIC", 1 / 256, -128, {}), ("TANH", 1 / 128, 0, {}), ("LEAKY_RELU", 0.07, 5, {"alpha": 0.3}),
        ("RELU", 0.03, -100, {}), ("RELU6", 0.03, -100, {}), ("RELU_N1_TO_1", 0.03, 10, {}),
        ("QUANTIZE", 0.031, 17, {}), ("QUANTIZE", 0.11, -9, {}),
    ]
    for s in (0.05, 0.03)
]  # fmt: skip
ROWS += [
    (kind, [q(4, 200, s=s, z=z)], t(4, 200, s=r, z=y), options)
    for kind, s, z, r, y, options in [
        ("SQRT", 0.05, -128, 0.03, -128, {}), ("SQRT", 0.05, -128, 0.02, 0, {}),
        ("ABS", 0.05, 3, 0.05, -7, {}), ("ABS", 0.05, 3, 0.03, -90, {}),
        ("HARD_SWISH", 0.05, 3, 0.04, -100, {}), ("HARD_SWISH", 0.02, -20, 0.011, -30, {}),
        ("HARD_SWISH", 0.3, 11, 0.29, -120, {}), ("EXP", 0.02, -10, 0.037, -128, {}),
        ("GELU", 0.05, 3, 0.033, -120, {}), ("GELU", 0.05, 3, 0.033, -120, {"approximate": True}),
        ("LOG", 0.05, -128, 0.031, 9, {}), ("RSQRT", 0.02, -128, 0.05, -128, {}),
        ("RSQRT", 0.030416397377848625, -128, 0.004432574845850468, -128, {}),  # the table of float32 differs
        ("RSQRT", 0.0023878533393144608, -128, 0.03386349603533745, -128, {}), ("NEG", 0.05, 0, 0.05, 0, {}),
    ]
]  # fmt: skip
ROWS += [
    (kind, [q(2, 4, 5, 3), *ints(size)], t(2, *size, 3), flags)
    for kind in ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR")
    for flags in [{}, {"alignCorners": True}, {"halfPixelCenters": True}]
    for size in [(8, 10), (7, 3), (2, 13), (1, 1), (12, 5), (33, 31)]
]
ROWS += [
    (kind, [q(2, 9, 5, 60), *ints(axis)], t(*reduced((2, 9, 5, 60), [axis], False), dtype="INT32"), {"outputType": 2})
    for kind in ("ARG_MAX", "ARG_MIN")
    for axis in (-1, 1)
]
ROWS += [
    (kind, [q(*shape, s=s, z=z)], t(*shape, s=r, z=y), {})
    for shape in [(4, 9), (2, 3, 4, 5), (3, 200)]
    for s, z in [(0.05, 3), (0.01, -100), (0.3, 50)]
    for kind, r, y in [("L2_NORMALIZATION", 1 / 128, 0), ("LOG_SOFTMAX", 16 / 256, 127)]
]
ROWS += [
    ("BATCH_MATMUL",
     [q(*batch, *((20, 4) if x else (4, 20)), z=9), q(*batch, *((7, 20) if y else (20, 7)), s=0.03, z=-5)],
     t(*batch, 4, 7, s=0.15, z=-11), {"adjX": x, "adjY": y})
    for batch, x, y in product([(), (2,), (2, 3)], (False, True), (False, True))
]  # fmt: skip
ROWS += [
    ("BATCH_MATMUL", [either(c == 1, (2, 4, 3) if x else (2, 3, 4), 0.02, 3), either(c == 2, (2, 4, 5), 0.02, 3)],
     t(2, 3, 5, s=0.08, z=4), {"adjX": x})
    for c, x in product((0, 1, 2), (True, False))
]  # fmt: skip
ROWS += [
    ("MUL", [q(*IMAGE), k((), 0.01, 3)], t(*IMAGE, s=0.03, z=9), {}),
    ("ADD", [k((), 0.07, 3), q(*IMAGE, s=0.03, z=9)], t(*IMAGE), {}),
    ("BATCH_MATMUL", [q(2, 4, 20, z=9), k((20, 7), 0.03, 0)], t(2, 4, 7, s=0.15, z=-11), {}),
    ("FULLY_CONNECTED", [q(4, 20), q(7, 20, s=0.04, z=5), -1], t(4, 7, s=0.3, z=1), {}),
    ("SQUARED_DIFFERENCE", [q(*IMAGE, s=0.03, z=7), q(1, 3, 4, 1, s=0.01, z=-9)], t(*IMAGE, s=0.05, z=-100), {}),
    ("SQUARED_DIFFERENCE", [q(*IMAGE, s=0.05, z=7), q(1, 3, 4, 1, s=0.07, z=-9)], t(*IMAGE, s=0.02, z=-100), {}),
    *[("FULLY_CONNECTED", [q(3, 12), q(7, 12, s=0.04, z=9)], t(3, 7, s=0.08, z=4), {"fusedActivationFunction": a})
      for a in (NONE, RELU, RELU6)],
    *[(kind, [q(*a), either(constant, b)], t(*a), {})
      for kind in ("MAXIMUM", "MINIMUM")
      for a, b, constant in [(IMAGE, IMAGE, False), (IMAGE, (5,), True), ((2, 7), (2, 7), False), ((2, 7), (), True)]],
    *[("PRELU", [q(*shape, s=s, z=7), k(slopes, r, 11)], t(*shape, s=y, z=-20), {})
      for shape, slopes in [(IMAGE, (1, 1, 5)), (IMAGE, (1, 1, 1)), ((2, 7), (7,))]
      for s, r, y in [(0.03, 0.01, 0.05), (0.05, 0.007, 0.02)]],
]  # fmt: skip

# movements
ROWS += [
    ("CONCATENATION", [q(*IMAGE, s=0.08, z=4), q(*other, s=0.08, z=4), k(other, 0.08, 4)], t(*whole, s=0.08, z=4),
     {"axis": axis})
    for axis, other,
     whole in [(1, (1, 2, 4, 5), (1, 7, 4, 5)), (2, (1, 3, 2, 5), (1, 3, 8, 5)), (-1, (1, 3, 4, 2), (1, 3, 4, 9))]
]  # fmt: skip
ROWS += [
    ("SPLIT", [*ints(axis), q(1, 4, 6, 8)], [t(*part)] * 2, {"numSplits": 2})
    for axis, part in [(1, (1, 2, 6, 8)), (3, (1, 4, 6, 4)), (-2, (1, 4, 3, 8))]
]
ROWS += [
    ("SPLIT_V", [q(*shape), *ints([1, shape[axis] - 3, 2], axis)],
     [t(*shape[: axis % len(shape)], n, *shape[axis % len(shape) + 1 :]) for n in (1, shape[axis] - 3, 2)],
      {"numSplits": 3})
    for shape, axis in [((1, 4, 6, 8), 3), ((1, 4, 6, 8), -3), ((2, 8), 1)]
]  # fmt: skip
ROWS += [
    row
    for shape, axis in [((1, 4, 6), 3), ((1, 4, 6), 1), ((5, 2), 0)]
    for row in [
        ("PACK", [q(*shape)] * 2, t(*shape[:axis], 2, *shape[axis:]), {"axis": axis, "valuesCount": 2}),
        ("UNPACK", [q(*shape[:axis], 2, *shape[axis:])], [t(*shape)] * 2, {"axis": axis, "num": 2}),
    ]
]
EDGES = [[0, 0], [1, 2], [3, 0], [0, 1]]
REFLECT, SYMMETRIC = 0, 1
ROWS += [
    (kind, [q(*shape), *ints(*constants)], t(*result), options)
    for kind, shape, constants, result, options in [
        ("PAD", (1, 4, 6, 5), [[[0, 0], [1, 2], [0, 3], [2, 0]]], (1, 7, 9, 7), {}),
        ("TRANSPOSE", (1, 7, 9, 7), [[0, 2, 3, 1]], (1, 9, 7, 7), {}),
        ("TRANSPOSE", (6, 4), [[1, 0]], (4, 6), {}),
        ("SLICE", (1, 3, 3, 7), [[0, 1, 0, 2], [1, 2, 3, 4]], (1, 2, 3, 4), {}),
        ("RESHAPE", (1, 2, 3, 4), [[6, 4]], (6, 4), {}),
        ("RESHAPE", (4, 6), [[1, 4, 3, 2]], (1, 4, 3, 2), {}),
        ("TILE", (1, 2, 3, 4), [[1, 3, 2, 2]], (1, 6, 6, 8), {}),
        ("TILE", (2, 5), [[3, 1]], (6, 5), {}),
        ("BROADCAST_TO", (1, 3, 1, 4), [[2, 3, 5, 4]], (2, 3, 5, 4), {}),
        ("BROADCAST_TO", (3, 1), [[2, 3, 4]], (2, 3, 4), {}),
        ("GATHER", (1, 4, 5, 3), [[2, 0, 0, 3]], (1, 4, 4, 3), {"axis": 2}),
        ("GATHER", (7, 6), [[[1, 6], [0, 1]]], (2, 2, 6), {"axis": 0}),
        ("GATHER", (3, 5), [2], (3,), {"axis": -1}),
        ("GATHER", (2, 4, 6), [[[1, 0, 3, 3, 2, 1], [0, 2, 2, 1, 3, 0]]], (2, 6, 6), {"axis": 1, "batchDims": 1}),
        ("REVERSE_V2", (1, 4, 5, 3), [[2]], (1, 4, 5, 3), {}),
        ("MIRROR_PAD", (1, 4, 5, 3), [EDGES], (1, 7, 8, 4), {"mode": REFLECT}),
        ("MIRROR_PAD", (1, 4, 5, 3), [EDGES], (1, 7, 8, 4), {"mode": SYMMETRIC}),
        ("DEPTH_TO_SPACE", (2, 3, 4, 12), [], (2, 6, 8, 3), {"blockSize": 2}),
        ("SPACE_TO_DEPTH", (2, 6, 9, 5), [], (2, 2, 3, 45), {"blockSize": 3}),
        ("SPACE_TO_BATCH_ND", (1, 5, 7, 3), [[2, 3], [[1, 0], [1, 1]]], (6, 3, 3, 3), {}),
        ("SPACE_TO_BATCH_ND", (2, 6, 5), [[2], [[0, 2]]], (4, 4, 5), {}),
        ("BATCH_TO_SPACE_ND", (6, 3, 3, 4), [[2, 3], [[1, 0], [1, 1]]], (1, 5, 7, 4), {}),
        ("BATCH_TO_SPACE_ND", (4, 3, 2), [[2], [[0, 0]]], (2, 6, 2), {}),
        ("STRIDED_SLICE", (1, 9, 7, 7), [[0, 8, 1, 0], [1, 0, 6, 7], [1, -3, 2, 1]], (1, 3, 3, 7), {"endMask": 8}),
        ("STRIDED_SLICE", (1, 5, 5, 2), [[0, -2, 0, 1], [1, 0, 3, 2], [1, 1, 2, 1]], (1, 2), {"shrinkAxisMask": 10}),
        ("STRIDED_SLICE", (2, 3, 4, 5), [[0, 1], [0, 4], [1, 2]], (2, 3, 4, 2), {"ellipsisMask": 1}),
        ("STRIDED_SLICE", (3, 4), [[0, 0, 1], [3, 1, 4], [2, 1, 1]], (2, 1, 3), {"newAxisMask": 2}),
        ("STRIDED_SLICE", (2, 3, 4), [[1], [2], [1]], (1, 3, 4), {}),
        ("STRIDED_SLICE", (2, 3, 4), [[1], [2], [1]], (3, 4), {"shrinkAxisMask": 1}),
        ("STRIDED_SLICE", (5, 4), [[1, 0], [3, 2], [1, 1]], (3, 2), {"offset": True}),
        # a dimension that is dropped starts where its mask says
        ("STRIDED_SLICE", (3, 5), [[1, 1], [2, 4], [1, 1]], (3,), {"beginMask": 1, "shrinkAxisMask": 1}),
    ]
]
ROWS += [
    ("PADV2", [q(1, 4, 3, 2), *ints([[0, 0], [0, 1], [2, 0], [0, 0]]), k((1,))], t(1, 5, 5, 2), {}),
    ("PADV2", [q(*IMAGE), *ints([[0, 0], [1, 0], [0, 1], [0, 0]]), k(())], t(1, 4, 5, 5), {}),
    ("PAD", [q(*IMAGE), *ints([[0, 0], [1, 0], [0, 2], [0, 0]])], t(1, 4, 6, 5, s=0.06, z=20), {}),
    ("MAXIMUM", [q(*IMAGE), q(*IMAGE, s=0.07, z=9)], t(*IMAGE, s=0.06, z=20), {}),
]

# floats, truth values and other numbers
ROWS += [
    (kind, [real(*IMAGE), floats(5)], tf(*IMAGE), {"fusedActivationFunction": activation})
    for kind, activation in [*product(("ADD", "SUB", "MUL", "DIV"), (NONE, RELU, RELU6))]
]
ROWS += [
    (kind, [real(*IMAGE), floats(5)], tf(*IMAGE), {}) for kind in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU")
]
ROWS += [
    (kind, [real(*IMAGE, z=z)], tf(*IMAGE), {"LEAKY_RELU": {"alpha": 0.3}, "SOFTMAX": {"beta": 1.0}}.get(kind, {}))
    for z, kinds in {
        -3: "ABS EXP FLOOR HARD_SWISH LEAKY_RELU LOGISTIC NEG RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 SIGN SQUARE SOFTMAX",
        -128: "LOG RSQRT SQRT",
    }.items()
    for kind in kinds.split()
]
ROWS += [
    (kind, [real(*IMAGE), *ints(axes)], tf(*reduced(IMAGE, axes, False)), {})
    for kind in ("MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM")
    for axes in ((1, 2), (3,), (2,))
]
ROWS += [
    (kind, [real(*IMAGE), *others], tf(*shape), WINDOWS | {"fusedActivationFunction": activation} | options)
    for activation in (NONE, RELU)
    for kind, others, shape, options in [
        ("CONV_2D", [floats(7, 3, 3, 5), floats(7)], (1, 2, 2, 7), {}),
        ("DEPTHWISE_CONV_2D", [floats(1, 3, 3, 5), floats(5)], (1, 2, 2, 5), {"depthMultiplier": 1}),
        ("AVERAGE_POOL_2D", [], (1, 2, 2, 5), {"filterHeight": 3, "filterWidth": 3}),
        ("MAX_POOL_2D", [], (1, 2, 2, 5), {"filterHeight": 3, "filterWidth": 3}),
    ]
]
ROWS += [
    ("BATCH_MATMUL", [real(2, *x), real(2, *y)], tf(2, 4, 5), options)
    for x, y, options in [((4, 6), (6, 5), {}), ((6, 4), (6, 5), {"adjX": True}), ((4, 6), (5, 6), {"adjY": True})]
]
ROWS += [
    ("RESIZE_BILINEAR", [real(*IMAGE), *ints((7, 9))], tf(1, 7, 9, 5), options)
    for options in [{}, {"halfPixelCenters": True}, {"alignCorners": True}]
]
ROWS += [
    ("TRANSPOSE_CONV", [*ints([1, 6, 8, 7]), floats(7, 3, 3, 5), real(*IMAGE)], tf(1, 6, 8, 7), WINDOWS),
    ("FULLY_CONNECTED", [real(1, 3, 40), floats(7, 40), floats(7)], tf(1, 3, 7),
     {"keepNumDims": True, "fusedActivationFunction": RELU6}),
    ("FULLY_CONNECTED", [real(3, 40), floats(7, 40), floats(7)], tf(3, 7), {}),
    ("L2_NORMALIZATION", [real(3, 8)], tf(3, 8), {}),
    ("ADD_N", [real(3, 8), real(3, 8), q(3, 8, dtype="FLOAT32")], tf(3, 8), {}),
    ("ARG_MAX", [real(3, 8), *ints(1)], t(3, dtype="INT32"), {"outputType": 2}),
    ("TOPK_V2", [q(2, 50), *ints(9)], [t(2, 9), t(2, 9, dtype="INT32")], {}),
    ("TOPK_V2", [real(2, 50), *ints(9)], [tf(2, 9), t(2, 9, dtype="INT32")], {}),
    ("CAST", [q(*IMAGE, z=131, dtype="UINT8")], tf(*IMAGE), {}),
    ("CAST", [q(*IMAGE, z=131, dtype="UINT8")], t(*IMAGE, dtype="INT32"), {}),
    ("PAD", [real(1, 4, 6, 5), *ints([[0, 0], [1, 0], [0, 2], [0, 1]])], tf(1, 5, 8, 6), {}),
    ("PADV2", [real(1, 5, 8, 6), *ints([[0, 0], [1, 0], [0, 0], [0, 0]]), floats()], tf(1, 6, 8, 6), {}),
    ("PADV2", [real(2, 3), *ints([[1, 0], [0, 0]]), lambda m: m.const(np.float32(-3e38))], tf(3, 3), {}),
    ("RESIZE_NEAREST_NEIGHBOR", [real(1, 6, 8, 6), *ints((12, 8))], tf(1, 12, 8, 6), {}),
    ("TRANSPOSE", [real(1, 12, 8, 6), *ints((0, 3, 1, 2))], tf(1, 6, 12, 8), {}),
]  # fmt: skip
ROWS += [
    (kind, [real(2, 900), real(2, 900)] if floating else [q(2, 900), q(2, 900, s=0.05 if "EQUAL" in kind else 0.07)],
     t(2, 900, dtype="BOOL"), {})
    for kind in ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
    for floating in (False, True)
]  # fmt: skip

# uint8 files of the earlier generation
U, RGB = (1, 6, 7, 4), (1, 3, 4, 2)
ROWS += [
    (kind, [*(q(*each, s=s, z=z, dtype="UINT8") for each, s, z in inputs), *ints(*constants)],
     t(*shape, s=s, z=z, dtype="UINT8"), options)
    for kind, inputs, constants, shape, (s, z), options in [
        ("ADD", [(U, 0.05, 131), (U, 0.031, 77)], [], U, (0.06, 100), {"fusedActivationFunction": RELU6}),
        ("SUB", [(U, 0.05, 131), (U, 0.031, 77)], [], U, (0.06, 100), {}),
        ("MUL", [(U, 0.05, 131), (U, 0.031, 77)], [], U, (0.06, 100), {}),
        ("MAXIMUM", [(U, 0.05, 131)] * 2, [], U, (0.05, 131), {}),
        ("RELU6", [(U, 0.05, 131)], [], U, (0.04, 9), {}),
        ("LOGISTIC", [(U, 0.05, 131)], [], U, (1 / 256, 0), {}),
        ("TANH", [(U, 0.05, 131)], [], U, (1 / 128, 128), {}),
        ("HARD_SWISH", [((4, 200), 0.05, 131)], [], (4, 200), (0.04, 20), {}),
        ("LEAKY_RELU", [((4, 200), 0.05, 131)], [], (4, 200), (0.07, 140), {"alpha": 0.3}),
        ("SOFTMAX", [((4, 20), 0.05, 131)], [], (4, 20), (1 / 256, 0), {"beta": 1.0}),
        ("L2_NORMALIZATION", [((9, 20), 0.05, 131)], [], (9, 20), (1 / 128, 128), {}),
        ("MEAN", [(U, 0.05, 131)], [[1, 2]], (1, 4), (0.02, 110), {}),
        ("REDUCE_MAX", [(U, 0.05, 131)], [[1, 2]], (1, 4), (0.05, 131), {}),
        ("RESIZE_NEAREST_NEIGHBOR", [(U, 0.05, 131)], [(12, 14)], (1, 12, 14, 4), (0.05, 131), {}),
        ("RESIZE_BILINEAR", [(U, 0.05, 131)], [(13, 9)], (1, 13, 9, 4), (0.05, 131), {"halfPixelCenters": True}),
        ("AVERAGE_POOL_2D", [(U, 0.05, 131)], [], (1, 3, 4, 4), (0.05, 131),
         WINDOWS | {"filterHeight": 3, "filterWidth": 2}),
        ("MAX_POOL_2D", [(U, 0.05, 131)], [], (1, 3, 4, 4), (0.05, 131),
         WINDOWS | {"filterHeight": 3, "filterWidth": 2, "fusedActivationFunction": RELU}),
        ("PAD", [(RGB, 0.05, 131)], [[[0, 0], [1, 1], [0, 2], [0, 0]]], (1, 5, 6, 2), (0.05, 131), {}),
        ("CONCATENATION", [(U, 0.05, 131), (U, 0.03, 99), (U, 0.06, 140)], [], (1, 6, 7, 12), (0.06, 140), {"axis": 3}),
        ("QUANTIZE", [(U, 0.05, 131)], [], U, (0.07, 111), {}),
    ]
]  # fmt: skip
ROWS += [  # LiteRT refuses a divisor of 0
    (
        "DIV",
        [q(*U, z=131, dtype="UINT8"), k(U, 0.021, 119, 120, 256, np.uint8)],
        t(*U, s=0.06, z=100, dtype="UINT8"),
        {},
    )
]
NUMBERS = Counter()


def name_of(row):
    NUMBERS[row[0]] += 1
    return f"{row[0].lower()}_{NUMBERS[row[0]]}"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_operators(m, equals_litert, row):
    outputs = made(m, *row)
    for y in outputs if row[0] != "SLICE" else ():  # whatever shape the file says, which LiteRT checks of SLICE alone
        m.graph.tensors[y].shape = np.ones_like(m.graph.tensors[y].shape)
    equals_litert(m, *outputs)


def path_of(m, *outputs):
    for y in outputs:
        m.output(y)
    return m.save()


# text, kind, inputs, outputs, options
REFUSED = [
    ("has 2 axes; it must have 1", "ARG_MAX", [q(2, 9, 5, 60), *ints([1, 2])], t(2, dtype="INT32"), {"outputType": 2}),
    ("names dimension 4 of a tensor of 4", "ARG_MAX", [q(2, 9, 5, 60), *ints([4])], t(2, dtype="INT32"),
     {"outputType": 2}),
    ("the kernel negates the bytes: scales must be equal and zero points 0", "NEG", [q(1, 9, z=3)], t(1, 9, z=3), {}),
    ("has tensor 't0' of 16 bits; this operator is supported with 8 bits: convert with int8 activations",
     "DIV", [q(3, 40, s=4e-4, z=0, dtype="INT16")] * 2, t(3, 40, s=4e-4, z=0, dtype="INT16"), {}),
    ("has int32 tensor 't0' with 0 scales; it needs one", "QUANTIZE", [q(3, 40, dtype="INT32")],
     t(3, 40, s=0.5, z=0), {}),
    ("whether R leaves 32 bits is True, expected False", "QUANTIZE",
     [lambda m: m.input((3, 40), 1.0, 0, dtype="INT32")],
     t(3, 40, s=0.5, z=0, dtype="INT16"), {}),
    (r"weights of int8 \(dynamic quantisation\); tilewright quantise .*model.tflite --calibration DATA.npz makes",
     "TRANSPOSE_CONV", [*ints([1, 6, 8, 7]), k((7, 3, 3, 5), 0.01, 0), real(*IMAGE)], tf(1, 6, 8, 7), WINDOWS),
    ("the output's scale and zero point is", "SOFTMAX", [q(1, 7)], t(1, 7, s=1 / 128, z=-128), {"beta": 1.0}),
    ("has beta 2.0; of float32 only 1 is supported", "SOFTMAX", [real(1, 7)], tf(1, 7), {"beta": 2.0}),
    ("casts a quantised uint8 tensor to uint8; only float32, int32",
     "CAST", [lambda m: m.node("RELU", [q(*IMAGE, z=131, dtype="UINT8")(m)], [t(*IMAGE, z=131, dtype="UINT8")(m)])],
     lambda m: m.tensor(IMAGE, dtype="UINT8"), {}),
    ("has fused activation 4; only none, RELU", "ADD", [real(*IMAGE)] * 2, tf(*IMAGE), {"fusedActivationFunction": 4}),
    ("has weights that are not constant, and biases",
     "FULLY_CONNECTED", [q(4, 20), q(7, 20), k((7,), 0.002, 0, dtype=np.int32)], t(4, 7), {}),
    *[(text, kind, [q(*shape), *ints(*constants)], t(*result), options)
      for kind, shape, constants, result, options, text in [
        ("DEPTH_TO_SPACE", (1, 3, 4, 5), [], (1, 6, 8, 1), {"blockSize": 2}, "has 5 channels, which are not whole"),
        ("SPACE_TO_DEPTH", (1, 3, 4, 5), [], (1, 1, 2, 20), {"blockSize": 2}, "has an image of 3 x 4, which is not"),
        ("SPACE_TO_DEPTH", (3, 4), [], (1, 8), {"blockSize": 2}, "of 2 dimensions; only 4 are supported"),
        ("SPACE_TO_BATCH_ND", (1, 3, 4, 5), [[2, 2], [[0, 0], [0, 0]]], (4, 2, 2, 5), {}, "which is not whole blocks"),
        ("SPACE_TO_BATCH_ND", (1, 3, 4, 5), [[2, 2], [[0, 0]]], (4, 2, 2, 5), {}, r"has blocks \[2, 2\] and edges"),
        ("BATCH_TO_SPACE_ND", (3, 3, 4, 5), [[2, 2], [[0, 0], [0, 0]]], (1, 6, 8, 5), {}, "has 3 images, which are"),
        ("MIRROR_PAD", (2, 3), [[[2, 0], [0, 0]]], (4, 3), {}, "reflects 2 elements of 2"),
        ("MIRROR_PAD", (2, 3), [[[1, 0]]], (3, 3), {}, "pads 1 dimensions of 2"),
        ("PAD", (2, 3), [[1, 0, 0]], (3, 3), {}, "has 3 numbers in input .*; it takes pairs"),
        ("PADV2", (2, 3), [[[1, 0], [0, 0]], [7, 8]], (3, 3), {}, "has 2 numbers in input .*; it takes one"),
        ("PACK", (), [], (), {"axis": 1, "valuesCount": 1}, "names dimension 1 of a tensor of 1"),
        ("UNPACK", (2, 3), [], (3,), {"axis": 2, "num": 1}, "names dimension 2 of a tensor of 2"),
        ("GATHER", (2, 3), [[0]], (1, 3), {"axis": 0, "batchDims": 1}, "has axis 0 and batch_dims 1; only equal"),
        ("GATHER", (2, 3), [[2]], (1, 3), {}, "whether the indices lie within dimension 0 is False"),
        ("STRIDED_SLICE", (2, 3), [[0, 0, 0], [1, 1, 1], [1, 1, 1]], (1, 1), {}, "3 entries for 2 dimensions"),
        ("STRIDED_SLICE", (2, 3), [[0, 0], [1, 1], [1, 0]], (1, 1), {}, "has begin, end and strides"),
        ("STRIDED_SLICE", (2, 3), [[1, 0], [1, 1], [1, 1]], (1, 1), {}, "selects no element along dimension 0"),
      ]],
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row[0][:40])
def test_refusals(m, row):
    text, *operator = row
    path = path_of(m, *made(m, *operator))
    with pytest.raises(UnsupportedError, match=text):
        import_tflite(path)


FUNCTIONS = {
    "SIN": (np.sin, {}),
    "COS": (np.cos, {}),
    "TANH": (np.tanh, {}),
    "CEIL": (np.ceil, {}),
    "GELU": (np.vectorize(lambda x: x / 2 * (1 + math.erf(x / math.sqrt(2)))), {}),
    "GELU_TANH": (lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), {"approximate": True}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_differ_in_the_last_bit_or_that_litert_does_not_have(m, name):
    function, options = FUNCTIONS[name]
    graph = import_tflite(path_of(m, *made(m, name.removesuffix("_TANH"), [real(*IMAGE)], tf(*IMAGE), options)))
    steps = m.rng.integers(-128, 128, IMAGE).astype(np.int8)
    found, _ = reference.run(graph, {graph.inputs[0].name: steps})
    np.testing.assert_allclose(found[graph.outputs[0].name], function((steps + 3.0) * 0.05), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype, scale, zero, given", [("FLOAT32", None, 0, None), ("UINT8", 0.05, 131, None), ("UINT8", 0.031, 131, None)]
)
def test_ends_of_other_types(m, equals_litert, dtype, scale, zero, given):
    x = m.input((1, 4, 3, 50), scale and 0.05, zero, dtype=dtype)
    y = m.op("QUANTIZE", [x], (1, 4, 3, 50), scale or 0.25, 7)
    y = m.op("RELU", [y], (1, 4, 3, 50), scale or 0.25, 7)
    m.output(m.node("QUANTIZE" if scale else "DEQUANTIZE", [y], [m.tensor((1, 4, 3, 50), scale and 0.05, zero, dtype)]))
    equals_litert(m, y)


def test_images_of_16_bits_at_the_ends(m, litert_outputs):
    """An image in the file's layout between two operators, one of which takes it in the accelerator's."""
    x = m.op("QUANTIZE", [m.input((1, 4, 5, 3), 0.001, 0, dtype="INT16")], (1, 4, 5, 3), 0.05, -3)
    y = m.op("CONV_2D", [x, *m.weights((6, 3, 3, 3))], (1, 4, 5, 6), padding=0, strideH=1, strideW=1)
    path = path_of(m, m.node("QUANTIZE", [y], [m.tensor((1, 4, 5, 6), 0.002, 0, "INT16")]))
    graph, given = import_tflite(path), m.rng.integers(-(1 << 13), 1 << 13, (1, 4, 5, 3)).astype(np.int16)
    (found,) = reference.run(graph, {graph.inputs[0].name: given})[0].values()
    np.testing.assert_array_equal(found, *litert_outputs(path, given))


@pytest.mark.parametrize(
    "kind, x, y",
    [("QUANTIZE", ("INT16", 0.0004, 0), y) for y in (("INT8", 0.05, -12), ("INT32", 1e-5, 0), ("INT16", 0.0013, 0))]
    + [("SOFTMAX", ("INT8", 0.1, 4), ("INT16", scale, -(1 << 15))) for scale in (2.0**-16, 1 / 65535)],
)
def test_wide_ends(m, sequence, litert_sequence, kind, x, y):
    (x_type, *x_scale), (y_type, *y_scale) = x, y
    given = m.input((3, 40), *x_scale, dtype=x_type)
    path = path_of(
        m, m.node(kind, [given], [m.tensor((3, 40), *y_scale, y_type)], **({"beta": 1.0} if kind == "SOFTMAX" else {}))
    )
    low = np.iinfo(x_type.lower()).min
    inputs = m.rng.integers(low, -low, (4, 3, 40)).astype(x_type.lower())
    (mine,), (theirs,) = sequence(path, inputs), litert_sequence(path, inputs)
    assert mine.dtype == y_type.lower() and len(np.unique(mine)) > 20
    np.testing.assert_array_equal(mine, theirs)


def test_what_lies_at_the_largest_value(m, equals_litert):
    """As networks that find key points do: position, its row and column, offsets there."""

    def number(kind, inputs, *shape, **options):
        return m.node(kind, inputs, [m.tensor(shape, dtype="INT32")], **options)

    heat, offsets = m.input((1, 48, 3), 0.05, -3), m.input((8, 6, 3), 0.02, 5)
    where = number("ARG_MAX", [heat, m.const(np.int32(1))], 1, 3, outputType=2)
    six, channel = m.const(np.array(6, np.int32)), m.const(np.array([[0, 1, 2]], np.int32))
    row = number("FLOOR_DIV", [where, six], 1, 3)
    column = number("SUB", [where, number("MUL", [row, six], 1, 3)], 1, 3)
    place = number("PACK", [row, column, channel], 1, 3, 3, axis=2, valuesCount=3)
    m.output(m.node("GATHER_ND", [offsets, place], [m.tensor((1, 3), 0.02, 5)]))
    m.output(m.node("CAST", [row], [m.tensor((1, 3), dtype="FLOAT32")]))
    flat = number("RESHAPE", [row, m.const(np.array([3], np.int32))], 3)
    m.output(m.node("GATHER", [offsets, flat], [m.tensor((3, 6, 3), 0.02, 5)], axis=0))
    x = m.input((2, 4, 6))
    rows = number("ARG_MAX", [x, m.const(np.int32(1))], 2, 6, outputType=2)
    m.output(m.op("GATHER", [x, rows], (2, 6, 6), 0.05, -3, axis=1, batchDims=1))
    table = m.const(m.rng.integers(-99, 99, (4, 6)).astype(np.int8), 0.05)
    m.output(
        m.op(
            "EMBEDDING_LOOKUP",
            [number("RESHAPE", [rows, *(make(m) for make in ints([12]))], 12), table],
            (12, 6),
            0.05,
            0,
        )
    )
    values = [m.const(np.int32(4)), m.const(np.float32(1)), m.const(np.float32(-0.5))]
    for axis, shape in ((-1, (2, 6, 4)), (1, (2, 4, 6))):
        m.output(m.node("ONE_HOT", [rows, *values], [m.tensor(shape, dtype="FLOAT32")], axis=axis))
    equals_litert(m)


@pytest.mark.parametrize("dtype, scale", [("INT8", (0.05, -8)), ("UINT8", (0.05, 120)), ("FLOAT32", (None,))])
@pytest.mark.parametrize("kind", ["SELECT", "SELECT_V2"])
def test_choices(m, equals_litert, kind, dtype, scale):
    x, y = (m.input((4, 3, 2), *scale, dtype=dtype) for _ in range(2))
    which = m.node("GREATER", [x, y], [m.tensor((4, 3, 2), dtype="BOOL")])
    z = m.node(kind, [which, x, y], [m.tensor((4, 3, 2), *scale, dtype=dtype)])
    m.output(z)
    q8 = m.op("QUANTIZE", [z], (4, 3, 2), 0.1, 3)
    zero = m.const(np.array([-8], np.int8), 0.1, 3)
    each = m.node("LESS", [q8, zero], [m.tensor((4, 3, 2), dtype="BOOL")])
    m.output(m.op("SELECT_V2", [each, q8, zero], (4, 3, 2), 0.1, 3))
    rows = m.node("GREATER", [m.input((4,), 0.1, 3), zero], [m.tensor((4,), dtype="BOOL")])
    equals_litert(m, m.op("SELECT", [rows, q8, m.input((4, 3, 2), 0.1, 3)], (4, 3, 2), 0.1, 3))


@pytest.mark.parametrize("kind", ["LOGICAL_AND", "LOGICAL_OR"])
@pytest.mark.parametrize("over", ["REDUCE_ANY", "REDUCE_ALL"])
def test_truth_values(m, equals_litert, kind, over):
    x, y = m.input((90, 2), 0.05, -3), m.input((90, 2), 0.05, -3)
    some = m.node("GREATER", [x, y], [m.tensor((90, 2), dtype="BOOL")])
    others = m.node("LESS", [x, m.const(np.array([7], np.int8), 0.05, -3)], [m.tensor((90, 2), dtype="BOOL")])
    both = m.node(kind, [some, others], [m.tensor((90, 2), dtype="BOOL")])
    m.output(m.node("LOGICAL_NOT", [both], [m.tensor((90, 2), dtype="BOOL")]))
    m.output(m.node("CAST", [both], [m.tensor((90, 2), dtype="FLOAT32")]))
    equals_litert(m, m.node(over, [both, m.const(np.array([1], np.int32))], [m.tensor((90,), dtype="BOOL")]))


def packed(values, bits):
    """Signed integers, several per byte, the first in the low bits."""
    per_byte = 8 // bits
    padding = np.zeros(-values.size % per_byte, int)
    values = np.append(values, padding).reshape(-1, per_byte) & (1 << bits) - 1
    return (values << bits * np.arange(per_byte)).sum(1).astype(np.uint8)


def test_weights_of_other_types(m, equals_litert):
    """Of files whose weights alone are small: int8 by one or many scales, half precision, and of four and two bits."""
    x = m.node("DEQUANTIZE", [m.input((2, 5))], [m.tensor((2, 5), dtype="FLOAT32")])
    scales = np.array([0.1, 0.2, 0.3], np.float32)
    weights = [m.const(m.rng.integers(-99, 99, (3, 5)).astype(np.int8), scale) for scale in (0.01, scales)]
    weights.append(m.tensor((3, 5), dtype="FLOAT16", data=m.rng.normal(size=(3, 5)).astype(np.float16)))
    for w in weights:
        w = m.node("DEQUANTIZE", [w], [m.tensor((3, 5), dtype="FLOAT32")])
        m.output(m.node("FULLY_CONNECTED", [x, w, -1], [m.tensor((2, 3), dtype="FLOAT32")]))
    for dtype, bits in (("INT4", 4), ("INT2", 2)):
        rows = m.rng.integers(-(1 << bits - 1), 1 << bits - 1, (3, 8))
        table = m.tensor((3, 8), scales, dtype=dtype, data=packed(rows, bits))
        rows = m.node("EMBEDDING_LOOKUP", [m.const(np.array([2, 0], np.int32)), table], [tf(2, 8)(m)])
        m.output(m.node("ADD", [rows, real(2, 8)(m)], [tf(2, 8)(m)]))
    # an odd number leaves half a byte
    w = m.tensor((3, 1, 1, 5), scales, dtype="INT4", data=packed(m.rng.integers(-7, 8, 15), 4))
    bias = m.const(np.arange(3, dtype=np.int32), np.float32(0.05) * scales)
    equals_litert(m, m.op("CONV_2D", [m.input((1, 4, 4, 5)), w, bias], (1, 4, 4, 3), 0.2, 1, strideH=1, strideW=1))


def levels(*formats):
    """The levels of a sparse constant: a size where one is dense, or the ends and the indices of its segments."""
    found = []
    for given in formats:
        level = schema.DimensionMetadataT()
        if isinstance(given, int):
            level.format, level.denseSize = schema.DimensionType.DENSE, given
        else:
            level.format = schema.DimensionType.SPARSE_CSR
            level.arraySegmentsType = level.arrayIndicesType = schema.SparseIndexVector.Int32Vector
            level.arraySegments, level.arrayIndices = schema.Int32VectorT(), schema.Int32VectorT()
            level.arraySegments.values, level.arrayIndices.values = (np.array(part, np.int32) for part in given)
        found.append(level)
    return found


def sparse(m, shape, values, formats, order, blocks=()):
    """A sparse int8 constant, whose `values` are in the order of traversal."""
    t = m.tensor(shape, 0.01, 0, data=np.array(values, np.int8))
    sparsity = m.graph.tensors[t].sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.blockMap = np.array(order, np.int32), np.array(blocks, np.int32)
    sparsity.dimMetadata = levels(*formats)
    return t


ROWS_AND_COLUMNS = (3, ([0, 2, 2, 5], [1, 4, 0, 2, 4])), (0, 1)
BLOCKS = (2, ([0, 1, 3], [1, 0, 2]), 2, 2), (0, 1, 2, 3), (0, 1)
BY_COLUMNS = ([0, 2], [0, 3]), ([0, 1, 3], [2, 0, 1])


@pytest.mark.parametrize(
    "shape, formats, order, blocks, count",
    [((3, 5), *ROWS_AND_COLUMNS, (), 5), ((4, 6), *BLOCKS, 12), ((3, 4), BY_COLUMNS, (1, 0), (), 3)],
)
def test_sparse_weights(m, equals_litert, shape, formats, order, blocks, count):
    values = m.rng.integers(1, 100, count)
    w = sparse(m, shape, values, formats, order, blocks)
    dense = m.node("DENSIFY", [w], [m.tensor(shape, 0.01, 0)])
    equals_litert(m, m.op("FULLY_CONNECTED", [m.input((9, shape[1])), dense, -1], (9, shape[0]), 0.02, 3))


@pytest.mark.parametrize(
    "formats, order, blocks, text",
    [
        ((3, 5), (0, 0), (), r"is sparse with levels \(0, 0\) and blocks"),
        ((3, 5), (0, 1), (7,), r"and blocks of dimensions \(7,\)"),
        ((3, 1 << 30), (0, 1), (), "is sparse with 3 times 1073741824 places"),
        ((3, ([0, 2, 9, 5], [1, 4, 0, 2, 4])), (0, 1), (), "segments that do not fit its 5 indices"),
        ((3, ([0, 2, 2, 5], [1, 4, 0, 2, 5])), (0, 1), (), "with 5 values at places that it does not have"),
        ((3, 5), (0, 1), (), "with 5 values at places"),
    ],
)
def test_damaged_sparse_weights(m, formats, order, blocks, text):
    w = sparse(m, (3, 5), np.ones(5), formats, order, blocks)
    m.output(m.node("DENSIFY", [w], [m.tensor((3, 5), 0.01, 0)]))
    with pytest.raises(FileError, match=text):
        read(m.save())


FOREIGN = {
    "FlexMatrixInverse": r"is an operator of TensorFlow itself \(Flex\); convert the network with TFLITE_BUILTINS",
    "TFSentencepieceTokenizeOp": "works on text; cut it off, and give the network the numbers that it computes",
    "CTCGreedyDecoder": "is a decoder; cut it off, and decode the network's outputs yourself",
    "edgetpu-custom-op": "is a program for another accelerator; give the file from before edgetpu_compiler",
    "MaxUnpooling2D": "is a custom operator, which only its author's runtime defines; build the network without it",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_that_files_do_not_describe(m, name):
    """Also in float files, which would otherwise be refused as such."""
    y = m.node("CUSTOM", [m.input((1, 4), None, dtype="FLOAT32")], [tf(1, 4)(m)])
    m.model.operatorCodes[-1].customCode = name
    m.output(m.node("COS", [y], [tf(1, 4)(m)]))
    with pytest.raises(UnsupportedError, match=f"1 unsupported construct: CUSTOM {name} .* {FOREIGN[name]}"):
        import_tflite(m.save())


HYBRID = [
    ("FULLY_CONNECTED", (3, 40), (7, 40), (3, 7), 0, {"asymmetricQuantizeInputs": asymmetric})
    for asymmetric in (True, False)
]
HYBRID += [
    ("CONV_2D", (2, 6, 7, 6), (8, 3, 2, 3), (2, 3, 4, 8), 0, WINDOWS),
    ("DEPTHWISE_CONV_2D", (2, 6, 7, 5), (1, 3, 3, 10), (2, 3, 4, 10), 3, WINDOWS | {"depthMultiplier": 2}),
]


@pytest.mark.parametrize("kind, shape, weight, result, axis, options", HYBRID)
@pytest.mark.parametrize("per_channel", [True, False])
def test_hybrid_layers(m, equals_litert, kind, shape, weight, result, axis, options, per_channel):
    """float32 activations, int8 weights: LiteRT quantises the activations in each run."""
    count = weight[axis] if per_channel or kind != "FULLY_CONNECTED" else 1
    scale = m.rng.uniform(0.002, 0.01, count).astype(np.float32)
    w = m.const(m.rng.integers(-127, 128, weight).astype(np.int8), scale, 0, axis)
    inputs = [m.input(shape, None, dtype="FLOAT32"), w, floats(weight[axis])(m)]
    options = options | {"fusedActivationFunction": RELU if per_channel else NONE}
    equals_litert(m, m.node(kind, inputs, [tf(*result)(m)], **options))


@pytest.mark.parametrize("length", [16, 32])
def test_fourier_transforms(m, litert_outputs, length):
    x, bins = real(2, 1, 20), length // 2 + 1
    spectrum = m.node("RFFT2D", [x(m), *(make(m) for make in ints([1, length]))], [t(1, 1, 1, dtype="COMPLEX64")(m)])
    rows = m.node("RESHAPE", [spectrum, *(make(m) for make in ints([2, bins]))], [t(1, 1, dtype="COMPLEX64")(m)])
    for kind in ("COMPLEX_ABS", "REAL", "IMAG"):
        m.output(m.node(kind, [rows], [tf(2, bins)(m)]))
    path, given = m.save(), m.rng.integers(-128, 128, (2, 1, 20)).astype(np.int8)
    graph = import_tflite(path)
    found, _ = reference.run(graph, {graph.inputs[0].name: given})
    for y, expected in zip(graph.outputs, litert_outputs(path, given), strict=True):
        np.testing.assert_allclose(found[y.name], expected, rtol=1e-6, atol=1e-5)


def test_transforms_of_images_are_refused(m):
    spectrum = m.node("RFFT2D", [real(2, 4, 8)(m), *(make(m) for make in ints([4, 8]))], [t(1, dtype="COMPLEX64")(m)])
    m.output(m.node("REAL", [spectrum], [tf(2, 4, 5)(m)]))
    with pytest.raises(UnsupportedError, match=r"transforms \[4, 8\] elements of \(2, 4, 8\); only single rows are tr"):
        import_tflite(m.save())


@pytest.mark.parametrize("dtype", ["INT8", "INT16"])
def test_zeros_of_scale_zero(m, equals_litert, dtype):
    """The first values of an unrolled recurrent layer, whose range is that of zeros alone."""
    width = np.dtype(dtype.lower())
    zeros = m.tensor((2, 5), 0.0, 0, dtype, data=np.zeros((2, 5), width))
    x = m.input((2, 5), 0.01, 0, dtype=dtype)
    w = m.const(m.rng.integers(-99, 99, (5, 5)).astype(np.int8), 0.01)
    bias = m.const(np.full(5, 99, np.int32 if dtype == "INT8" else np.int64), 0.0)
    y = m.node("FULLY_CONNECTED", [zeros, w, bias], [m.tensor((2, 5), 0.01, 0, dtype)])
    product = m.node("MUL", [x, zeros], [m.tensor((2, 5), 0.01, 0, dtype)])
    for term in (y, product):
        x = m.node("ADD", [x, term], [m.tensor((2, 5), 0.011, 0, dtype)])
    equals_litert(m, x)


def test_dilated_convolutions_between_batch_and_space(m, equals_litert):
    two, edges, none = (make(m) for make in ints([2, 2], [[2, 2], [2, 2]], [[0, 0], [0, 0]]))
    y = m.op("SPACE_TO_BATCH_ND", [m.input((1, 8, 8, 3)), two, edges], (4, 6, 6, 3), 0.05, -3)
    y = m.op("CONV_2D", [y, *m.weights((4, 3, 3, 3))], (4, 4, 4, 4), padding=1, strideH=1, strideW=1)
    equals_litert(m, m.op("BATCH_TO_SPACE_ND", [y, two, none], (1, 8, 8, 4)))


MOVED = [
    ("RESHAPE", [(2, 60)], (2, 60), {}),
    ("TRANSPOSE", [(0, 2, 1, 3)], (1, 6, 4, 5), {}),
    ("TRANSPOSE", [(0, 3, 1, 2)], (1, 5, 4, 6), {}),
    ("SLICE", [(0, 1, 0, 2), (1, 2, 6, 3)], (1, 2, 6, 3), {}),
    ("STRIDED_SLICE", [(0, 1, 0, 2), (1, 3, 6, 3), (1, 1, 1, 1)], (1, 2, 6), {"shrinkAxisMask": 8}),
    ("GATHER", [[3, 0]], (1, 2, 6, 5), {"axis": 1}),
    ("RESIZE_NEAREST_NEIGHBOR", [(8, 9)], (1, 8, 9, 5), {}),
    ("TILE", [(1, 2, 1, 1)], (1, 8, 6, 5), {}),
    ("SPACE_TO_DEPTH", [], (1, 2, 3, 20), {"blockSize": 2}),
]
MOVED += [  # of almost the same scale, as files have them whose scales were rounded twice
    (kind, [], (1, 2, 3, 5), WINDOWS | {"padding": VALID, "filterHeight": 2, "filterWidth": 2})
    for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
]


@pytest.mark.parametrize("kind, constants, shape, options", MOVED)
def test_bytes_are_copied_whatever_the_scales(m, equals_litert, kind, constants, shape, options):
    scale = (0.0500002, -3) if kind.endswith("POOL_2D") else (0.0521, 4)
    y = m.op(kind, [m.input((1, 4, 6, 5)), *(make(m) for make in ints(*constants))], shape, *scale, **options)
    m.output(m.op("QUANTIZE", [y], shape, 0.09, -20))
    equals_litert(m, *([] if kind.endswith("POOL_2D") else [y]))


@pytest.mark.parametrize(
    "row",
    [
        ("DEPTH_TO_SPACE", [q(1, 3, 4, 12)], t(1, 6, 8, 3), {"blockSize": 2}),
        ("SPACE_TO_BATCH_ND", [q(1, 4, 4, 3), *ints([2, 2], [[0, 0], [0, 0]])], t(4, 2, 2, 3), {}),
    ],
    ids=lambda row: row[0],
)
def test_blocks_are_one_transposition(m, row):
    assert [type(op) for op in import_tflite(path_of(m, *made(m, *row))).ops] == [Reshape, Transpose, Reshape]


# kind -> shapes of input, weights and output, channels, options
LAYERS = {
    "CONV_2D": ((1, 6, 7, 5), (8, 3, 3, 5), (1, 6, 7, 8), {"strideH": 1, "strideW": 1}),
    "DEPTHWISE_CONV_2D": (
        (1, 6, 7, 5),
        (1, 3, 3, 10),
        (1, 6, 7, 10),
        {"strideH": 1, "strideW": 1, "depthMultiplier": 2},
    ),
    "TRANSPOSE_CONV": ((1, 4, 4, 5), (6, 3, 3, 5), (1, 8, 8, 6), {"strideH": 2, "strideW": 2}),
}


def unsigned_layer(m, kind, zero_point, seed):
    """A uint8 layer whose sums suit uint8, on any zero points."""
    shape, weights, out, options = LAYERS[kind]
    rng = np.random.default_rng(seed)
    s, r = (float(np.float32(v)) for v in rng.uniform(0.003, 0.05, 2))
    x = m.input(shape, s, int(rng.integers(0, 256)), dtype="UINT8")
    w = m.const(rng.integers(0, 256, weights).astype(np.uint8), r, zero_point)
    b = m.const(rng.integers(-3000, 3000, out[-1]).astype(np.int32), np.float32(s) * np.float32(r))
    y = m.tensor(out, float(np.float32(s * r * 700)), 120, dtype="UINT8")
    inputs = [m.const(np.array(out, np.int32)), w, x, b] if kind == "TRANSPOSE_CONV" else [x, w, b]
    m.output(m.node(kind, inputs, [y], **options))
    return m


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("zero_point", [50, 93, 127, 128, 200])
def test_weights_with_a_zero_point(tflite, equals_litert, kind, zero_point):
    for seed in range(2):
        equals_litert(unsigned_layer(tflite(), kind, zero_point, seed))


def test_wide_weights_are_those_of_int16(tflite):
    for zero_point, dtype in ((128, np.int8), (93, np.int16)):
        graph = import_tflite(unsigned_layer(tflite(), "CONV_2D", zero_point, 0).save())
        assert [op.weight.dtype for op in graph.ops if isinstance(op, QConv2d)] == [dtype]


def test_uint8_dense_layers_round_once_as_litert_does(m, litert_outputs):
    x = m.input((30, 50), 0.0513, 99, dtype="UINT8")
    w = m.const(m.rng.integers(0, 256, (20, 50)).astype(np.uint8), 0.0117, 140)
    b = m.const(m.rng.integers(-3000, 3000, 20).astype(np.int32), np.float32(0.0513) * np.float32(0.0117))
    path = path_of(m, m.node("FULLY_CONNECTED", [x, w, b], [m.tensor((30, 20), 0.3, 120, dtype="UINT8")]))
    given = m.rng.integers(0, 256, (30, 50)).astype(np.uint8)
    graph = import_tflite(path)
    (mine,) = reference.run(graph, {graph.inputs[0].name: given}, "single")[0].values()
    assert np.array_equal(mine, litert_outputs(path, given)[0]) and mine.dtype == np.uint8


def test_uint8_ends_keep_names_and_type(m):
    unsigned_layer(m, "CONV_2D", 128, 0)
    m.graph.tensors[0].name, m.graph.tensors[3].name = "image", "scores"
    path = m.save()
    graph = import_tflite(path)
    ends = [(end.name, end.dtype, end.zero_point >= 0) for end in (*graph.inputs, *graph.outputs)]
    assert ends == [("image", "uint8", True), ("scores", "uint8", True)]
    assert [type(op) for op in graph.ops].count(Recode) == 2
    file, names = relabelled(read(path))
    assert names == {0: "image", 3: "scores"} and {each.type for each in file.tensors} == {"INT8", "INT32"}
    assert [each.unsigned for each in file.tensors] == [True, True, False, True]


BOXES, CLASSES = 40, 5


def post_process(m, real, most, shapes=True, **changes):
    """A file of the operator alone; the scores' first class is the background."""
    dtype = "FLOAT32" if real else "UINT8"
    boxes = m.input((1, BOXES, 4), None if real else 0.05, 128, dtype=dtype)
    scores = m.input((1, BOXES, CLASSES + 1), None if real else 1 / 256, 0, dtype=dtype)
    anchors = m.rng.integers(20, 256, (BOXES, 4)).astype(np.uint8)
    last = m.const(anchors.astype(np.float32) / 256) if real else m.const(anchors, 0.004, 9)
    outputs = [m.tensor(s if shapes else (), dtype="FLOAT32") for s in ((1, most, 4), (1, most), (1, most), (1,))]
    options = {"max_detections": most, "max_classes_per_detection": 1, "num_classes": CLASSES}
    options |= {"nms_score_threshold": 0.3, "nms_iou_threshold": 0.5}
    options |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0} | changes
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in options.items():
            if value is not None:
                {bool: builder.Bool, int: builder.Int, float: builder.Float}[type(value)](key, value)
    m.node("CUSTOM", [boxes, scores, last], outputs)
    m.model.operatorCodes[-1].customCode = "TFLite_Detection_PostProcess"
    m.graph.operators[-1].customOptions = np.frombuffer(bytes(builder.Finish()), np.uint8)
    for y in outputs:
        m.output(y)
    if real:
        m.output(m.op("QUANTIZE", [boxes], (1, BOXES, 4), 0.1, 0))  # else it is a float32 model
    return m


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_regular_nms": True, "detections_per_class": 7}])
@pytest.mark.parametrize("most", [6, 30])
def test_detections(tflite, litert_outputs, real, options, most):
    for seed in range(4):
        m = post_process(tflite(seed), real, most, **options)
        path = m.save()
        shapes = (1, BOXES, 4), (1, BOXES, CLASSES + 1)
        given = [m.rng.integers(60 * (1 - k), 200 + 56 * k, shape).astype(np.uint8) for k, shape in enumerate(shapes)]
        if real:
            given = [(x.astype(np.float32) - (1 - k) * 128) / (25, 256)[k] for k, x in enumerate(given)]
            given = [x.astype(np.float32) for x in given]
        graph = import_tflite(path)
        found, _ = reference.run(graph, dict(zip((t.name for t in graph.inputs), given)))
        for t, expected in zip(graph.outputs, litert_outputs(path, *given)):
            assert found[t.name].shape == expected.shape and np.array_equal(found[t.name], expected)
        assert found[graph.outputs[3].name][0] > 1


def test_shapes_that_a_file_leaves_out(tflite):
    graph = import_tflite(post_process(tflite(), False, 6, shapes=False).save())
    assert [t.shape for t in graph.outputs] == [(1, 6, 4), (1, 6), (1, 6), (1,)]


def test_options_that_are_missing(tflite):
    with pytest.raises(UnsupportedError, match="'custom_tflite_detection_postprocess_0' .* has no option num_classes"):
        import_tflite(post_process(tflite(), False, 6, num_classes=None).save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].customOptions = np.array([255, 255], np.uint8)
    with pytest.raises(UnsupportedError, match="has no option max_detections"):
        import_tflite(m.save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].outputs = m.graph.operators[0].outputs[:3]
    with pytest.raises(UnsupportedError, match="has 3 outputs; it must have 4"):
        import_tflite(m.save())
