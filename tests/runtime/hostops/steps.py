"""Further steps of the host operators that have a C call, at their edges, for NumPy and for C."""

from itertools import product

import numpy as np

from tests.runtime.hostops import token_cases
from tests.runtime.hostops.cases import EXAMPLES, example
from tilewright.runtime.hostops import HOST_OPS
from tilewright.runtime.hostops.floats import DEFAULTS

RNG = np.random.default_rng(7)
EVERY = np.arange(-128, 128).astype(np.int8)
DTYPES = ["int8", "uint8", "int16", "int32", "int64", "float32", "bool"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45, 0.5, -0.5, 1.5, 2.5, -2.5, 8388609.0]
SPECIAL += [6.5, 88.7, 88.8, -87.4, -103.9, -104.0, 200.5, -200.5, 16.619047, -9.0]
SCALES = [(0, 0), (1 << 30, 1), ((1 << 31) - 1, 31), (1518500250, -3), (1 << 30, -32), (1095936512, -7)]
SHAPES = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((6, 1), (1, 4)), ((1,), (2, 5)), ((1, 1), (1, 1)), ((), (3,))]
PAIRS = EVERY[:, None], EVERY


def some(shape, dtype="int8", bound=None):
    """Values of the whole range, or up to +-bound, the extremes among them."""
    if dtype == "float32":
        return RNG.normal(size=shape).astype(dtype)
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if bound is None else (-bound, bound)
    found = RNG.integers(low, high, shape, np.int64, endpoint=True)
    return np.where(RNG.random(shape) < 0.2, RNG.choice([low, -1 if low else 1, 0, high], shape), found).astype(dtype)


def numbers(dtype):
    """Edges, and numbers of all sizes."""
    if dtype == "float32":
        return np.concatenate([SPECIAL, RNG.normal(size=90) * 10.0 ** RNG.integers(-6, 9, 90)]).astype(dtype)
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, -2, -1, 0, 1, 2, 3, info.max - 1, info.max]
    return np.concatenate([edges, RNG.integers(-99, 99, 40), some(40, dtype)]).astype(dtype)


def scale(pair):
    return dict(zip(("multiplier", "exponent"), pair))


def scales(count, low=-32, high=31):
    multipliers = RNG.choice([0, 1 << 30, (1 << 31) - 1, 1518500250, 1095936512], count).tolist()
    return {"multipliers": multipliers, "exponents": RNG.integers(low, high, count, endpoint=True).tolist()}


def integer(low, high):
    return int(RNG.integers(low, high, endpoint=True))


def at(position):
    return np.array([position], np.int32)


def of_values():
    """Operators that compute each value by itself."""
    ties = np.arange(-150, 150, dtype=np.float32) / 2
    edges = np.array([v for v in SPECIAL if v == v], np.float32)
    near = [edges, ties, np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, np.float32(-9e9))]
    points = (1.0, 0), (0.5, -128), (0.003921568859368563, 127), (2.0**-126, 3), (2.0**110, -3), (1 / 3, 5)
    for (unit, zero), away in product(points, (False, True)):
        x = np.concatenate([*near, RNG.normal(size=500) * 100 * unit]).astype(np.float32)
        yield "quantize", [x], {"scale": unit, "zero_point": zero, "ties_away": away}
        with np.errstate(over="ignore"):
            yield "quantize", [x * np.float32(unit)], {"scale": unit, "zero_point": zero, "ties_away": away}
            yield "quantize", [x * np.float32(unit)], {"scale": unit, "zero_point": 99 * zero, "dtype": "int16"}
            yield "quantize", [x * np.float32(unit)], {"scale": unit, "zero_point": zero, "reciprocal": True}
        for values in (EVERY, some(500, "int16")):
            yield "dequantize", [values], {"scale": unit, "zero_point": zero}
    yield "expect_numbers", [np.zeros((1, 16), np.int8)], {}
    yield "recode", [EVERY], {}
    yield "recode", [EVERY.view(np.uint8)], {}
    yield "lookup", [EVERY.reshape(2, 128)], {"table": some(256)}
    for pair in SCALES:
        yield "rescale", [EVERY], {"x_zero_point": -5, "zero_point": 7, "low": -100, "high": 90, **scale(pair)}
        for x, dtype in product(("int8", "int16", "int32"), ("int8", "int16", "int32")):
            for x_zero, zero in ((0, 0), (-(1 << 31), (1 << 31) - 1), (300, -(1 << 31))):
                facts = {"x_zero_point": x_zero, "zero_point": zero, "dtype": dtype, **scale(pair)}
                yield "rescale_integers", [some(99, x)], facts
    for dtype in ("int16", "int32"):
        yield "narrow", [some(99, dtype)], {}
    edges = [-128, -1, 0, 1, 127, 255, 256, 32768, 65535, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 24) + 1]
    reals = np.array([1.9, -1.9, -0.5, 3e9, -3e9, 9.3e18, -9.3e18, 1e-45], np.float32)
    for x, dtype in product([np.array(edges).astype(each) for each in DTYPES] + [reals], DTYPES[:-1]):
        if x is not reals or dtype in ("int8", "int32", "int64", "float32"):
            yield "cast", [x], {"dtype": dtype}
    for shape in ((2, 128), (1, 2, 128), (2, 4, 8, 4)):
        yield "lookup_channels", [EVERY.reshape(shape)], {"table": some((shape[1], 256))}


def of_pairs():
    """Operators on two arrays that broadcast."""
    for shapes in SHAPES:
        x, y = map(some, shapes)
        yield "add", [x, y], {"zero_points": [3, -4, 5], **scales(3, -20, 0), "sign": 1, "shift": 20}
        yield "maximum", [x, y], {}
        yield "minimum", [x, y], {}
        yield "select", [some(shapes[0], "bool"), x, y], {}
        yield "select", [some(shapes[1], "bool"), x.astype(np.int64), y.astype(np.int64)], {}
    for _ in range(8):
        clamp = {"low": integer(-128, -1), "high": integer(0, 127)}
        three = {"zero_points": RNG.choice([-128, -3, 0, 5, 127], 3).tolist()}
        one = {key[:-1]: value[0] for key, value in scales(1).items()}
        shift = integer(0, 22)
        yield "add", PAIRS, {**three, **scales(3), "sign": int(RNG.choice([-1, 1])), "shift": shift, **clamp}
        for contract in ("double", "single"):
            yield "multiply", PAIRS, {**three, **one, **clamp, "contract": contract}
        yield "divide", PAIRS, {**three, **one, **clamp}
        yield "prelu", PAIRS, {**three, **scales(2)}
        yield "squared_difference", PAIRS, {**three, **scales(3), "shift": shift % 8}
    table = some((256, 256))
    for first, second in product((np.int8, np.uint8), repeat=2):
        yield "lookup_pair", [PAIRS[0].view(first), PAIRS[1].view(second)], {"table": table}
    for function in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"):
        facts = {"function": function, "zero_points": [3, -4]}
        yield "compare_int8", PAIRS, {**facts, **scales(2, -9, 0)}
        yield "compare_int8", PAIRS, {**facts, "multipliers": [1 << 30] * 2, "exponents": [1, 1]}
        for dtype in ("int32", "int64", "float32", "bool"):
            x = np.array([False, True]) if dtype == "bool" else numbers(dtype)
            yield "compare", [x[:, None], x], {"function": function}


INTEGERS = "add sub mul div floor_div floor_mod pow maximum minimum squared_difference prelu leaky_relu".split()
EXACT = "abs neg sign square relu relu6 relu_0_to_1 relu_n1_to_1".split()
REALS = "ceil floor round hard_swish sqrt rsqrt exp logistic".split()
ONNX = "Abs Neg Sign Ceil Floor Round Reciprocal Softsign Sqrt Relu Clip LeakyRelu ThresholdedRelu".split()
ONNX += ["HardSigmoid", "HardSwish"]


def of_numbers():
    """Arithmetic on numbers, and reductions."""
    for function, dtype in product(INTEGERS, ("int32", "int64", "float32")):
        if dtype != "float32" or function not in ("floor_mod", "pow"):
            x = numbers(dtype)[:, None]
            # the quotient of an extreme by 1 or -1 may be no integer
            x = x // 2 if function == "div" and dtype != "float32" else x
            yield "number_binary", [x, numbers(dtype)], {"function": function}
            yield "number_binary", [x[:4].reshape(2, 1, 2), numbers(dtype)[:3, None]], {"function": function}
    for function in "Add Div Max Min Mul PRelu Sub".split():
        yield "float_binary", [numbers("float32")[:, None], numbers("float32")], {"function": function}
    for function, dtype in [*product(EXACT, ("int32", "int64")), *product(EXACT + REALS, ("float32",))]:
        yield "number_function", [numbers(dtype)], {"function": function}
    # numbers of two binades, some of all, and neighbours of squares
    squares = (np.arange(1, 4096, dtype=np.float32) ** 2).view(np.int32)
    near = np.concatenate([squares - 1, squares, squares + 1, np.arange(300, dtype=np.int32)])
    every = np.arange(0x3F800000, 0x40800000, 337, dtype=np.int32)
    for x, function in product((every, RNG.integers(0, 0x7F800000, 20_000, np.int32), near), ("sqrt", "rsqrt")):
        yield "number_function", [x.view(np.float32)], {"function": function}
    for function in ("exp", "logistic"):
        edges = np.nextafter(np.array([88.72284, -9, 16.619047], np.float32), np.float32(0))
        x = np.concatenate([edges, RNG.uniform(-110, 95, 9_000), RNG.normal(size=9_000)]).astype(np.float32)
        yield "number_function", [x], {"function": function}
    for function, (alpha, beta) in product(ONNX, ((0.2, 0.7), (-3.5e38, 3.5e38))):
        yield "float_function", [numbers("float32")], {"function": function, "alpha": alpha, "beta": beta}
    reduced = ([0], [4, 5, 2]), ([3, 1], [3, 1, 5, 1]), ([0, 1, 2, 3], []), ([], [3, 4, 5, 2]), ([2], [24])
    for axes, shape in reduced:
        facts = {"axes": axes, "shape": shape}
        for function, dtype in product(("sum", "mean", "reduce_prod", "reduce_max", "reduce_min"), DTYPES[3:6]):
            yield "number_reduce", [some((3, 4, 5, 2), dtype, 99)], {"function": function, **facts}
        for function in ("reduce_all", "reduce_any", "reduce_max", "reduce_min"):
            yield "number_reduce", [RNG.random((3, 4, 5, 2)) < 0.8], {"function": function, **facts}
        yield "reduce_max", [some((3, 4, 5, 2))], facts
        yield "reduce_min", [some((3, 4, 5, 2))], facts
        for pair in SCALES[1:]:
            x, points = some((3, 4, 5, 2)), {"x_zero_point": -7, "zero_point": 5}
            for contract in ("double", "single"):
                yield "mean", [x], {**points, **facts, **scale(pair), "contract": contract}
        for function in ("ReduceMax", "ReduceMin"):
            yield "float_reduce", [RNG.choice(SPECIAL, (3, 4, 5, 2)).astype("f4")], {"function": function, **facts}
    weights = {"weight": some((5, 40), "float32"), "bias": some(5, "float32")}
    yield "number_dense", [some((2, 3, 40), "float32")], weights


def of_rows():
    """Operators along an axis, and by position."""
    nan = np.array([[1, np.nan, 3, np.nan], [np.inf, -np.inf, 0.0, -0.0], [-0.0, 0.0, -1e-45, 1e-45]], np.float32)
    few = [RNG.integers(-3, 4, (3, 5, 4)).astype(dtype) for dtype in ("int8", "int32", "int64", "float32")]
    for x, smallest, dtype in product((*few, nan[:, None]), (False, True), ("int32", "int64")):
        for axis in range(3):
            shape = [n for k, n in enumerate(x.shape) if k != axis]
            yield "arg_max", [x], {"axis": axis, "shape": shape, "dtype": dtype, "smallest": smallest}
    for x, positions, count in product((*few, nan), (False, True), (1, 3, 4)):
        yield "top_k", [x], {"count": count, "positions": positions}
    for where, x in product(("int32", "int64"), [some((4, 5, 6), dtype) for dtype in DTYPES]):
        for k, n in enumerate(x.shape):
            yield "gather", [x, RNG.integers(0, n, (2, 3)).astype(where)], {"axis": k}
            yield "gather", [x, np.array(n - 1).astype(where)], {"axis": k}
            yield "gather", [x, RNG.integers(-n, n, (2, 3)).astype(where)], {"axis": k, "from_end": True}
            places = np.stack([RNG.integers(0, size, (2, 2)) for size in x.shape[: k + 1]], -1)
            yield "gather_nd", [x, places.astype(where)], {}
    sizes = ((3, 10), 1), ((2, 5, 4), 1), ((6, 3), 0), ((1,), 0), ((1, 300), 1), ((9, 1), 1)
    for (shape, axis), pair, bits in product(sizes, ((1 << 30, 20), (1 << 30, 31), ((1 << 31) - 1, 0)), (8, 16)):
        for x in (some(shape), np.full(shape, -128, np.int8)):
            yield "softmax", [x], {"axis": axis, "bits": bits, **scale(pair)}
            if bits == 8:
                yield "softmax", [x], {"axis": axis, "steps": 255.0, "zero_point": -100, **scale(pair)}
        facts = {"n": 3, "c": 9, "shape": [3, 9], "axis": 1, "bits": bits, **scale(pair)}
        yield "unpack_softmax", [some((2, 3, 2, 4))], facts
    yield "softmax", [np.zeros(8191, np.int8)], {"axis": 0, "multiplier": 1 << 30, "exponent": 20}
    for (shape, axis), zero, first in product((*sizes, ((7000, 1), 0)), (-128, 0, 127), (False, True)):
        for x in (some(shape), np.full(shape, zero, np.int8)):
            yield "l2_normalize", [x], {"axis": axis, "x_zero_point": zero, "scaled_first": first}
        x = np.resize(SPECIAL, shape).astype(np.float32)
        yield "float_softmax", [some(shape, "float32") * 20], {"axis": axis}
        yield "float_softmax", [x], {"axis": axis}


def of_moves():
    """Operators that move values."""
    for dtype in DTYPES:
        x = some((2, 3, 4, 5), dtype)
        yield "reshape", [x], {"shape": [6, 20]}
        yield "transpose", [x], {"axes": [2, 0, 3, 1]}
        yield "transpose", [x], {"axes": [0, 1, 2, 3]}
        yield "concatenate", [x, x[:, :1], some((2, 7, 4, 5), dtype)], {"axis": 1}
        yield "pad", [x], {"pads": [[0, 1], [2, 0], [0, 0], [3, 3]], "value": 1}
        yield "strided_slice", [x], {"begin": [1, 0, 3, 0], "strides": [-1, 2, -2, 1], "shape": [2, 2, 2, 5]}
        for indices in ([[1, 1, 0], [], [3], [4, 0]], [[1, 1, 0], [2, 0], [], []], [[], [], [], []]):
            yield "take", [x], {"indices": indices}
    x = some((2, 3, 2, 1, 3, 2, 2, 2))
    yield "transpose", [x], {"axes": [7, 5, 3, 1, 0, 2, 4, 6]}
    yield "take", [x], {"indices": [[1, 0], [2], [], [0, 0], [1, 2], [1], [0], [1, 0, 1]]}
    yield "reshape", [some((1,))], {"shape": []}
    yield "concatenate", [some((1,))], {"axis": 0}
    yield "pad", [some((1,))], {"pads": [[2, 3]], "value": -128}
    yield "transpose", [some((1, 1, 1))], {"axes": [2, 0, 1]}
    for block in (1, 4, 16):
        wide = -(-27 // block) * block * 3
        for rows, channels in (((5, 96), 32), ((5, wide), 27)):
            yield "lanes", [some(rows)], {"block": block, "shape": [1, channels, 5, 3]}
            yield "lanes", [some((1, channels, 5, 3))], {"block": block, "shape": list(rows)}
    for (batch, block), dtype, (n, c) in product(
        ((1, 16), (2, 4), (4, 3), (1, 1)), ("int8", "int32"), ((1, 1), (3, 16), (4, 7), (5, 40))
    ):
        size, blocks = {"batch": batch, "block": block}, (-(-n // batch), -(-c // block))
        yield "pack", [some((n, c), dtype)], size
        yield "pack", [some((n, c, 3, 2), dtype)], size
        yield "pack", [some((n, 3, 2, c), dtype)], size | {"layout": "NHWC"}
        yield "unpack", [some((*blocks, batch, block), dtype)], {"n": n, "c": c, "shape": [n * c]}
        image = some((*blocks, 3, 2, batch, block), dtype)
        yield "unpack", [image], {"n": n, "c": c, "shape": [n, c, 6]}
        yield "unpack", [image], {"n": n, "c": c, "shape": [n, 3, 2, c], "layout": "NHWC"}
    for count in (2, 3, 4):
        yield "unpack_planes", [some((count, 2, 3, 2, 4))], {"n": 3, "c": 9, "shape": [9, 3]}
    yield "accumulators", [some((2, 3, 4, 5, 2, 4)) for _ in range(4)], {"n": 3, "c": 9}
    yield "accumulators", [some((1, 1, 1, 4)) for _ in range(4)], {"n": 1, "c": 2}
    for _ in range(30):
        n, c, h, w = (integer(1, 6) for _ in range(4))
        fold = {key: integer(1, 4) for key in ("rows", "dilation", "step", "strips", "group", "entries", "block")}
        fold |= {"top": integer(0, 3), "left": integer(0, 3), "value": integer(-128, 127)}
        fold |= {"offsets": RNG.integers(0, 9, integer(1, 3)).tolist()}
        yield "fold_windows", [some((n, c, h, w))], fold
        yield "fold_windows", [some((n, h, w, c))], fold | {"layout": "NHWC"}
    x, pack = some((1, 4, 3, 5), "uint8"), ["pack", {"batch": 1, "block": 4, "layout": "NHWC"}]
    flat, turned = ["reshape", {"shape": [60]}], ["reshape", {"shape": [5, 12]}]
    yield "chain", [x], {"stages": [["recode", {}], ["lookup", {"table": 1}], pack], "tables": some((2, 256))}
    yield "chain", [x], {"stages": [flat]}
    yield "chain", [x], {"stages": [flat, ["recode", {}], turned]}
    stages = [["unpack", {"n": 1, "c": 6, "shape": [6]}], ["dequantize", {"scale": 0.3, "zero_point": 4}]]
    yield "chain", [some((1, 2, 1, 4))], {"stages": stages}


def of_windows():
    """Pools, resized images, and layers with constant weights."""
    for _ in range(20):
        kernel, strides = RNG.integers(1, 5, 2).tolist(), RNG.integers(1, 4, 2).tolist()
        pads = [integer(0, kernel[k % 2] - 1) for k in range(4)]
        shape = (2, 3, *(k + integer(0, 5) for k in kernel))
        x, facts, clamp = some(shape), {"kernel": kernel, "strides": strides}, {"low": -100, "high": 90}
        yield "max_pool", [x], {**facts, **clamp, "pads": pads}
        yield "max_pool", [x], {**facts, **clamp, "pads": [7, 0, 0, 7]}
        for up in (False, True):
            yield "exact_average_pool", [x], {**facts, **clamp, "pads": pads, "ties_up": up}
        for pair, contract in product(SCALES, ("double", "single")):
            points = {"x_zero_point": -7, "zero_point": 5, "contract": contract}
            yield "average_pool", [x], {**facts, **clamp, **points, **scale(pair)}
        real = some(shape, "float32")
        for counts in (False, True):
            orders = {"padding_counts": counts, "by_columns": not counts}
            yield "float_average_pool", [real], {**facts, "pads": pads, **orders}
        for values in (real, np.where(RNG.random(shape) < 0.2, np.float32(np.nan), real)):
            yield "float_max_pool", [values], {**facts, "pads": pads}
    for value in (-128, 127):
        x = np.full((1, 1, 1, 1), value, np.int8)
        yield "max_pool", [x], {"kernel": [1, 1], "strides": [1, 1], "pads": [0] * 4}
        yield "exact_average_pool", [x], {"kernel": [3, 3], "strides": [1, 1], "pads": [1] * 4}
    sizes = ((2, 3, 6, 7), [13, 3]), ((1, 1, 1, 1), [2, 3]), ((1, 2, 5, 5), [5, 5]), ((1, 1, 9, 8), [1, 1])
    for (shape, size), (corners, half) in product(sizes, ((False, False), (True, False), (False, True))):
        facts = {"size": size, "align_corners": corners, "half_pixel_centers": half}
        yield "resize_bilinear", [some(shape)], facts
        yield "resize_bilinear", [some(shape)], facts | {"offset": 128}
        yield "resize_bilinear", [some(shape, "float32")], facts


def of_layers():
    """Layers with constant weights."""
    for _ in range(12):
        groups, per_group, of_group = (integer(1, 3) for _ in range(3))
        kernel, strides, dilations = (RNG.integers(1, 4, 2).tolist() for _ in range(3))
        reach = [(k - 1) * d + 1 + integer(0, 3) for k, d in zip(kernel, dilations)]
        shape, outputs = (2, groups * per_group, *reach), groups * of_group
        facts = {"strides": strides, "pads": RNG.integers(0, 3, 4).tolist(), "dilations": dilations, "groups": groups}
        for kind in ("int8", "int16"):
            weights = {"weight": some((outputs, per_group, *kernel), kind, 120), "bias": some(outputs, "int32")}
            yield "conv2d_accumulators", [some(shape)], {**facts, **weights, "x_zero_point": integer(-128, 127)}
        reals = {"weight": some((outputs, per_group, *kernel), "float32"), "bias": some(outputs, "float32")}
        yield "float_conv2d", [some(shape, "float32")], {**facts, **reals, "ordered": True}
    for pads, kind in product(([0, 0, 0, 0], [1, 0, 2, 1], [0, 1, -2, 0], [1, 1, 0, -3]), ("int8", "int16")):
        for strides, kernel in (([2, 3], [3, 4]), ([1, 1], [4, 3]), ([3, 2], [3, 2])):
            facts = {"weight": some((5, 3, *kernel), kind, 120), "bias": some(5, "int32"), "x_zero_point": -9}
            facts |= {"strides": strides, "pads": pads}
            yield "conv_transpose2d_accumulators", [some((2, 3, 4, 5))], facts
        for strides, dilations, groups in (([2, 3], [1, 2], 1), ([1, 1], [2, 1], 2), ([3, 2], [1, 1], 3)):
            facts = {"weight": some((6, 2, 3, 3), "float32"), "bias": some(2 * groups, "float32"), "groups": groups}
            facts |= {"strides": strides, "dilations": dilations, "pads": pads, "ordered": True}
            yield "float_conv_transpose2d", [some((2, 6, 4, 5), "float32")], facts
    for (rows, features, units), kind in product(((3, 6, 5), (1, 1, 1), (2, 300, 4)), ("int8", "int16")):
        facts = {"weight": some((units, features), kind, 120), "bias": some(units, "int32"), "x_zero_point": 127}
        yield "dense_accumulators", [some((rows, features))], facts
        scaled = {"multiplier": RNG.integers(1 << 30, 1 << 31, units), "exponent": RNG.integers(-20, 1, units)}
        for dtype in ("int16", "int32"):
            yield "dense_int16", [some((rows, features))], {**facts, **scaled, "dtype": dtype}
    multiplier = np.array([0, 1 << 30, (1 << 31) - 1, 1518500250, 1095936512, (1 << 31) - 1])
    exponents = [-32, -9, 0, 1, 20, 31], [-9, -10, -11, -12, -13, -31]
    for shape, exponent, contract in product(((2, 6), (2, 6, 3), (1, 6, 4, 5)), exponents, ("double", "single")):
        facts = {"multiplier": multiplier, "exponent": np.array(exponent), "zero_point": -3, "low": -50}
        yield "requantise", [some(shape, "int32")], facts | {"contract": contract}
        facts["steps"] = np.array([0, -125, 130, 7, -8, 1], np.int32)
        yield "requantise", [some(shape, "int32")], facts | {"contract": contract}
    for filters, taps, units in ((4, 3, 2), (6, 9, 6), (1, 1, 1)):
        facts = {"weight": some((filters, taps), "int16"), "bias": some(units, "int32"), "zero_point": 5}
        for x in (some((3, filters, taps), "int16"), np.full((3, filters, taps), -(1 << 15), np.int16)):
            yield "filter_int16", [x], {**facts, **scale((1095936512, -20))}
    for step in STEPS:
        for coupled, (count, steps, units) in product((False, True), ((2, 5, 7), (1, 1, 1))):
            rows = (3 if coupled else 4) * units
            facts = {"weight": some((rows, units)), "bias": some(rows, "int32", 1 << 14), "coupled": coupled}
            facts |= {"gate_multiplier": RNG.integers(1 << 30, 1 << 31, rows)}
            facts |= {"gate_exponent": RNG.integers(-6, 2, rows)}
            state = some((count, units)), some((count, units), "int16")
            yield "lstm", [some((count, steps, rows), "int16"), *state], {**facts, **step}
            gates = some((count, 1, rows), "int16")
            for own in (some((count, rows), "int32", 1 << 17), some((count, rows), "int16")):
                yield "lstm_step", [gates, own, state[1]], {**step, "coupled": coupled}
        # all values of the sums, one gate at a time, and of the cells
        every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
        own = np.zeros((1, 1 << 18), np.int32)
        for gate in range(4) if step is STEPS[0] else ():
            gates = np.where(np.arange(4)[:, None] == gate, every, 20000).astype(np.int16).reshape(1, 1, -1)
            yield "lstm_step", [gates, own, np.full((1, 1 << 16), 5000, np.int16)], step
        gates = np.full((1, 1, 1 << 18), 32767, np.int16)
        gates[..., : 1 << 16] = -32768
        yield "lstm_step", [gates, own, every[None]], step


STEPS = [
    {"zero_point": 5, "cell_bits": 4, "clip": 0, "multiplier": 1095936512, "exponent": -22},
    {"zero_point": -128, "cell_bits": 0, "clip": 20480, "multiplier": 1 << 30, "exponent": -20},
    {"zero_point": 0, "cell_bits": 6, "clip": 32767, "multiplier": (1 << 31) - 1, "exponent": -21},
]
GROUPS = [([0] * 4, [0] * 8), ([0, 0, 3, -1], [3, 0, -1, 0, 3])]


def of_transformers():
    """Products of matrices, norms, rotations, caches and attention, of networks' and of Deeploy's."""
    matrices = ((4, 6), (6, 5)), ((2, 1, 4, 3), (5, 3, 2)), ((3, 2, 1, 1), (1, 1)), ((2, 3, 4), (2, 4, 2))
    for x, y in matrices:
        for pair, contract in (((1 << 30, -7), "single"), ((16908288, 0), "double")):
            facts = {"zero_points": [3, -5, 7], "contract": contract, **scale(pair)}
            yield "batch_matmul", [some(x), some(y)], facts
            yield "batch_matmul", [some(x), some((*y[:-2], y[-1], y[-2]))], facts | {"transposed": True}
            yield "batch_matmul", [some((3, 6, 1, 4)), some((3, 5, 1, 6))], facts | {"images": True}
            yield "batch_matmul", [some((1, 6, 1, 4)), some((3, 5, 1, 6))], facts | {"images": True}
            both = facts | {"images": True, "transposed": True}
            yield "batch_matmul", [some((3, 6, 1, 4)), some((3, 6, 1, 5))], both
        for first, second in product(("int8", "int32"), repeat=2):
            yield "integer_matmul", [some(x, first), some(y, second)], {}
        yield "float_matmul", [some(x, "float32"), some(y, "float32")], {"ordered": True}
    extremes = np.full((2, 600), -128, np.int8)
    yield "batch_matmul", [extremes, extremes.T.copy()], {"zero_points": [127, 127, 0], **scale((1 << 30, -17))}
    for width in (1, 2, 64, 100, 300):
        facts = {"multiplier": RNG.integers(1 << 30, 1 << 31, width), "exponent": RNG.integers(-22, -14, width)}
        for x in (some((2, 3, width)), *(np.full((1, width), value, np.int8) for value in (0, 1, -128))):
            yield "rms_norm", [x], facts
    angles = RNG.uniform(0, 7, (9, 4))
    tables = {"cosine": np.round(np.cos(angles) * 16384).astype("i2")}
    tables |= {"sine": np.round(np.sin(angles) * 16384).astype("i2")}
    for place in (0, 5, 8):
        yield "rotate", [some((1, 24)), at(place)], tables
        yield "rotate", [np.full((1, 8), -128, np.int8), at(place)], tables
    for place in (0, 4, 5, 13, -1):
        yield "write_rows", [some((1, 3, 5, 1)), some((1, 3)), at(place)], {}
    for place in (0, 3, 4, 99):
        yield "write_columns", [some((1, 100, 3, 1)), some((1, 3, 4, 1)), at(place)], {}
    sizes = (112, 100), (8, 8), (1, 1), (1024, 1024), (8192, 600)
    for (lanes, outputs), (context, seen) in product(GROUPS, sizes):
        facts = {"key_groups": lanes, "value_groups": outputs, "seen": seen}
        facts |= {"multipliers": [1 << 30, 1184974977], "exponents": [-6, -23]}
        keys, values = some((1, 2 * len(lanes), context, 1)), some((1, context, len(outputs), 1))
        queries = some((1, 6 * len(lanes)))
        for place in sorted({0, seen // 2, seen - 1}):
            yield "attention", [queries, keys, values, at(place)], facts
        yield "attention", [0 * queries, keys, values, at(seen - 1)], facts
    edges = np.array([-(1 << 31), (1 << 31) - 1, -1, 0, 1, 1 << 16, -(1 << 16)], np.int32)
    x, factor = np.concatenate([edges, some(30, "int32")]), np.concatenate([edges, some(3, "int32")])
    for shift, offset in product((0, 1, 16, 31), (0, 1 << 15, -(1 << 31))):
        inputs = x, factor[:, None], np.full(1, offset, np.int32)
        yield "requant_shift", inputs, {"shift": shift, "low": -128, "high": 127}
        yield "requant_shift", inputs, {"shift": shift, "low": 0, "high": 255, "zero_point": -128, "dtype": "int8"}
        wide = {"low": -(1 << 31), "high": (1 << 31) - 1, "zero_point": -128, "dtype": "int32"}
        yield "requant_shift", inputs, {"shift": shift, **wide}
    parabolas = (1, 86, 3888, 64), (1, 0, 0, 1), (-3, 5, 7, 100), (1, 84, -9999, 62)
    for (dtype, bound), numbers in product((("int8", None), ("int32", 1 << 20)), parabolas):
        facts = dict(zip(("quadratic", "linear", "constant", "period"), numbers)) | scale((1791197184, -1))
        for levels in (256, 1, 1 << 16):
            yield "integer_softmax", [some((2, 3, 17), dtype, bound)], facts | {"levels": levels}
            more = {"levels": levels, "zero_point": -3, "low": -9}
            yield "integer_softmax", [some((4, 1), dtype, bound)], facts | more
    for (dtype, bound), size in product((("int8", None), ("int32", 1 << 20)), (1, 64, 100)):
        for x in (some((2, 3, size), dtype, bound), np.zeros((1, size), dtype), np.full((1, size), -128, dtype)):
            weight, bias = some(size, "int32", 1 << 24), some(size, "int32", 1 << 20)
            yield "integer_norm", [x, weight], {"shift": 16}
            yield "integer_norm", [x, weight, bias], {"shift": 9, "low": -9, "high": 9, "x_zero_point": 4}
            yield "integer_norm", [x, weight, bias], {"shift": 0}


def of_dynamic_scales():
    """Ranges, scales and zero points of one run, and sums of products with them."""
    for low, high in ((0, 0), (-1, 3), (2, 5), (-7, -3), (-1e38, 1e38), (-1e-40, 1e-37), (0, 1e9), (-0.3, 0.55)):
        ends = np.array([min(low, 0), max(high, 0)], np.float32)
        x = np.linspace(low, high, 511).astype(np.float32).reshape(7, 73)
        yield "value_range", [x], {}
        yield "range_scale", [ends], {}
        (scale,) = HOST_OPS["range_scale"]([ends], {})
        yield "range_zero_point", [ends, scale], {}
        (zero,) = HOST_OPS["range_zero_point"]([ends, scale], {})
        yield "quantize_by", [x, scale, zero], {}
        yield "quantize_by", [scale * (np.arange(-40, 580, dtype=np.float32) / 2), scale, zero], {}
        yield "pad_by", [some((1, 2, 3, 4)), zero], {"pads": [[0, 0], [0, 0], [2, 1], [0, 3]]}
        for (shape, axis), relu in product((((2, 6, 5, 3), 1), ((4, 6), 1), ((2, 3, 6), 2), ((6,), 0)), (False, True)):
            acc, facts = some(shape, "int32"), {"sums": some(6, "int32", 1 << 20), "axis": axis}
            yield "subtract_zero_point", [acc, zero], facts
            one, each = np.array([1e-3], np.float32), some(6, "float32").reshape(6, *[1] * (len(shape) - axis - 1))
            for factors in ([one], [each], [one, each], [each, one]):
                yield "scale_sums", [acc, zero, *factors], facts | {"relu": relu}


def of_wide_values():
    """int16 values in two bytes."""
    yield "split_bytes", [np.arange(-(1 << 15), 1 << 15).astype(np.int16).reshape(4, -1)], {}
    for shape in ((2, 6, 3, 5), (4, 6), (2, 6, 7)):
        facts = {key: some(6, "float32") for key in ("weight_scale", "bias")} | {"sums": some(6, "int32")}
        yield "scale_bytes", [some(shape, "int32")], facts | {"scale": 0.003, "zero_point": -(1 << 15)}


def cases():
    """(inputs, attributes) of steps, by operator, of those that have a C call; the first are the examples."""
    found: dict[str, list] = {
        name: [(example(name), attrs)] for name, (_, _, attrs) in EXAMPLES.items() if HOST_OPS[name].c
    }
    for group in (
        of_values,
        of_pairs,
        of_numbers,
        of_rows,
        of_moves,
        of_windows,
        of_layers,
        of_transformers,
        of_dynamic_scales,
    ):
        for name, arrays, attrs in group():
            found[name].append((arrays, attrs))
    return found


def of_16_bits():
    """Steps on int16 values, which C does not compute."""
    limits = {"low": -9999, "high": 32000}
    pairs = [some((3, 4), "int16"), some((4,), "int16")]
    for name in ("maximum", "minimum"):
        yield name, pairs, {}
    facts = {"zero_points": [0] * 3, "multipliers": [1 << 30, 1518500250, 1095936512], "exponents": [0, -1, -13]}
    yield "add", pairs, facts | {"sign": -1, "shift": 15} | limits
    yield "multiply", pairs, {"zero_points": [0] * 3} | scale((1095936512, -13)) | limits
    yield "lookup", [some((3, 4), "int16")], {"table": some(1 << 16, "int16")}
    pool = {"kernel": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]} | limits
    for name in ("max_pool", "exact_average_pool"):
        yield name, [some((2, 3, 6, 7), "int16")], pool
    yield "resize_bilinear", [some((1, 2, 5, 6), "int16", 99)], {"size": [7, 9]}
    reduced = {"axes": [1], "shape": [3, 5]}
    yield "mean", [some((3, 4, 5), "int16", 99)], reduced | {"x_zero_point": 0, "zero_point": 0} | scale((1 << 30, -1))
    for name in ("reduce_max", "reduce_min"):
        yield name, [some((3, 4, 5), "int16")], reduced
    image, bias = some((1, 4, 5, 6), "int16"), some(6, "int64", 1 << 30)
    layer = {"weight": some((6, 4, 3, 2)), "bias": bias, "x_zero_point": 0, "strides": [2, 1], "pads": [1, 0, 1, 1]}
    yield "conv2d_accumulators", [image], layer | {"dilations": [1, 2], "groups": 1}
    yield "conv_transpose2d_accumulators", [image], layer
    yield "dense_accumulators", [some((3, 9), "int16")], {"weight": some((6, 9)), "bias": bias, "x_zero_point": 0}
    for second in ("int16", "int8"):
        halved = {"zero_points": [0] * 3} | scale((1 << 30, 0))
        yield "batch_matmul", [some((2, 3, 4), "int16", 5), some((4, 6), second, 5)], halved
    wide = [some((2, 3, 4), "int64", 1 << 40), numbers("int32").astype(np.int64)[:, None]]
    for x in wide:
        channels = x.shape[1]
        facts = {"multiplier": np.full(channels, 1518500250), "exponent": np.full(channels, -14)}
        yield "requantise_int16", [x], facts | limits
        yield (
            "requantise_real",
            [x],
            {"weight_scale": np.full(channels, 0.5, "f4"), "x_scale": 3e-9} | limits | {"output_scale": 2e-4},
        )
    for axis, exponent in product((0, 1), (-2, 1)):
        yield "softmax_int16", [some((9, 40), "int16")], {"axis": axis, **scale((1518500250, exponent))}


def without_c():
    """Steps that NumPy alone computes: functions of C's library, sums in the order of a library, several tokens."""
    yield from of_16_bits()
    yield from token_cases.steps()
    for function in "cos elu gelu gelu_tanh log sin tanh".split():
        yield "number_function", [numbers("float32")], {"function": function}
    for function in "Cos Elu Erf Exp Gelu GeluTanh Log Mish Selu Sigmoid Sin Softplus Tanh".split():
        alpha, beta = DEFAULTS.get(function, (0.0, 0.0))
        yield "float_function", [numbers("float32")], {"function": function, "alpha": alpha, "beta": beta}
    x, y = numbers("float32")[:, None], numbers("float32")
    yield "number_binary", [x, y], {"function": "pow"}
    yield "number_binary", [some((3, 4), "float32"), some((4,), "float32")], {"function": "hypot"}
    scales, reals = np.linspace(0.01, 0.03, 6).astype("f4"), some(6, "float32")
    constants = {"weight_scale": scales, "bias": reals}
    for asymmetric, rows in product((False, True), (some((3, 9), "float32"), np.zeros((2, 9), "f4"))):
        yield "hybrid_dense", [rows], constants | {"weight": some((6, 9)), "asymmetric": asymmetric}
    layer = {"strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2], "groups": 2}
    yield "hybrid_conv2d", [some((2, 4, 5, 6), "float32")], constants | layer | {"weight": some((6, 2, 3, 2))}
    for length in (1, 7, 16):
        yield "rfft", [some((2, 3, 9), "float32")], {"length": length}
    yield "float_binary", [x, y], {"function": "Pow"}
    for (axes, shape), kind in product((([0, 2], [4, 1]), ([1], [3, 5])), "L1 L2 Mean Prod Sum SumSquare".split()):
        yield "float_reduce", [some((3, 4, 5), "float32")], {"function": f"Reduce{kind}", "axes": axes, "shape": shape}
    yield "float_softmax", [some((3, 9), "float32") * 20], {"axis": 1, "logarithm": True}
    for axis in (0, 1):
        facts = {"axis": axis, "scale": 0.05, "output_scale": 0.0625, "zero_point": 127}
        yield "log_softmax", [some((9, 7))], facts
    for (hidden, features), reverse in product(((5, 3), (1, 4)), (False, True)):
        facts = {"weight": some((4 * hidden, features), "float32"), "recurrence": some((4 * hidden, hidden), "float32")}
        facts |= {"bias": some(4 * hidden, "float32"), "reverse": reverse}
        yield "float_lstm", [some((4, 2, features), "float32")], facts
    yield "float_matmul", [some((2, 3, 4), "float32"), some((4, 5), "float32")], {}
    layer = {"bias": some(6, "float32"), "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2], "groups": 2}
    yield "float_conv2d", [some((1, 4, 5, 6), "float32")], layer | {"weight": some((6, 2, 3, 2), "float32")}
    yield "float_conv_transpose2d", [some((1, 4, 5, 6), "float32")], layer | {"weight": some((4, 3, 3, 2), "float32")}
    tables = {key: some((12, 5), "int16", 1 << 14) for key in ("cosine", "sine")}
    for number in range(3):
        yield "rotate", [some((4, 20)), at(number)], tables
        yield "write_rows", [some((1, 10, 8, 1)), some((4, 10)), at(number)], {}
        yield "write_columns", [some((1, 12, 6, 1)), some((1, 6, 4, 1)), at(number)], {"tokens": 4}
        yield "write_columns", [some((1, 12, 6, 1)), some((1, 6, 4, 1)), at(number)], {"tokens": 2}
        facts = dict(zip(("key_groups", "value_groups"), GROUPS[1])) | {"seen": 12}
        facts |= {"multipliers": [1 << 30] * 2, "exponents": [-6, -23]}
        arrays = some((4, 16)), some((1, 8, 12, 1)), some((1, 12, 5, 1)), at(number)
        yield "attention", arrays, facts


ANGLES = dict.fromkeys(("cosine", "sine"), np.ones((9, 4), np.int16))
SEEN = {"key_groups": [0] * 4, "value_groups": [0] * 8, "multipliers": [1 << 30] * 2, "exponents": [-6, -23], "seen": 9}
CACHE, NAN = np.ones((1, 112, 8, 1), np.int8), "the input holds NaN, which has no int8 value"
QUERY, WHERE = np.ones((1, 24), np.int8), r"^index -?\d\.\.-?\d is outside a dimension of [45]$"
# (operator, inputs that are not allowed, attributes, text of NumPy's error); C says that they are not
REFUSED = [
    ("embed_tokens", [np.array([7, 100], np.int32)], EXAMPLES["embed_tokens"][2], "token 100: the model has 100 words"),
    (
        "write_tokens",
        [some((5, 4), "int16"), some((2, 4), "int16"), at(2)],
        {"start": 0},
        "position 5 is not in the cache",
    ),
    ("quantize", [np.array([1, np.nan], np.float32)], {"scale": 1.0, "zero_point": 0}, NAN),
    ("value_range", [np.array([[1, np.nan]], np.float32)], {}, "the input holds infinity or NaN"),
    ("value_range", [np.array([[-np.inf, 1]], np.float32)], {}, "the input holds infinity or NaN"),
    ("range_scale", [np.array([0, 1e-44], np.float32)], {}, "end at 0 and .*; a 255th of that is 0 in float32"),
    ("expect_numbers", [np.eye(16, dtype=np.int8)[3]], {}, NAN),
    ("gather_nd", [np.ones((4, 5), np.int8), np.array([[0, 0], [4, 0]])], {}, WHERE),
]
for place in (-1, 9):
    outside = f"position {place} is not in the"
    REFUSED += [
        ("rotate", [QUERY, at(place)], ANGLES, f"{outside} tables of angles, which end at 8; reset"),
        (
            "attention",
            [QUERY, CACHE.swapaxes(1, 2), CACHE, at(place)],
            SEEN,
            f"{outside} positions that are read, which",
        ),
    ]
for place in (-1, 112):
    arrays = [CACHE, np.ones((1, 8, 4, 1), np.int8), at(place)]
    REFUSED += [("write_columns", arrays, {}, f"position {place} is not in the cache, which end at 111")]
REFUSED += [("gather", [np.ones((4, 5), np.int8), np.array([-6])], {"axis": 1, "from_end": True}, WHERE)]
for place in (-1, 5):
    REFUSED += [("gather", [np.ones((4, 5), np.int8), np.array([0, place])], {"axis": 1}, WHERE)]
    REFUSED += [("gather_nd", [np.ones((4, 5), np.int8), np.array([[0, 0], [0, place]])], {}, WHERE)]
