"""What host operators need and give: the declared results against those of the operators, and steps that lie."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.hostops import CHECKS, HOST_OPS, Operand

RNG = np.random.default_rng(3)
IMAGE = (2, 6, 7, 9)
R = {"multiplier": 1 << 30, "exponent": -3}
POINTS = {"x_zero_point": 3, "zero_point": -4}
POOL = {"kernel": [3, 2], "strides": [2, 1]}
FOLD = {"rows": 2, "dilation": 1, "step": 1, "strips": 3, "group": 12, "offsets": [0, 5], "entries": 5}
FOLD |= {"top": 1, "left": 1, "value": 0, "block": 8}
CONV = {"weight": np.ones((4, 3, 3, 2), np.int8), "bias": np.zeros(4, np.int32), "x_zero_point": 1}
CONV |= {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [2, 1], "groups": 2}
BACK = {"weight": np.ones((5, 6, 3, 2), np.int8), "bias": np.zeros(5, np.int32), "x_zero_point": 1}
BACK |= {"strides": [2, 3], "pads": [1, 0, -2, 1]}
DENSE = {"weight": np.ones((5, 6), np.int8), "bias": np.zeros(5, np.int32), "x_zero_point": 1}
PER_CHANNEL = {"multiplier": np.full(6, 1 << 30), "exponent": np.zeros(6, np.int64), "zero_point": 0}
ADD = {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 3, "exponents": [0, 1, -20], "sign": -1, "shift": 20}
FIVE = np.full(5, 7, np.int32)
FILTER = {"weight": np.ones((4, 3), np.int16), "bias": FIVE[:2], "zero_point": 5}
LSTM = {"weight": np.ones((12, 3), np.int8), "zero_point": 5, "cell_bits": 4, "clip": 9}
LSTM |= dict.fromkeys(("bias", "gate_multiplier", "gate_exponent"), np.full(12, 7, np.int32))
FOUND = {"anchors": np.ones((9, 4), np.float32), "scales": [10.0, 10.0, 5.0, 5.0], "each_class": False}
FOUND |= {"most": 5, "classes": 3, "classes_per_box": 2, "per_class": 4, "score": 0.3, "overlap": 0.5}
ATTENTION = {"key_groups": [0, 0, 3, -1], "value_groups": [3, 0, -1, 0, 3], "seen": 100}
ATTENTION |= {"multipliers": [1 << 30] * 2, "exponents": [-3, -20]}
FLOAT_CONV = CONV | {"weight": np.ones((4, 3, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
FLOAT_BACK = BACK | {"weight": np.ones((6, 2, 3, 2), np.float32), "bias": np.zeros(4, np.float32)}
FLOAT_BACK |= {"dilations": [1, 2], "groups": 2}
for attrs in (FLOAT_CONV, FLOAT_BACK):
    del attrs["x_zero_point"]
FLOAT_LSTM = {"weight": np.ones((20, 4), np.float32), "recurrence": np.ones((20, 5), np.float32)}
FLOAT_LSTM |= {"bias": np.ones(20, np.float32), "reverse": True}
# name -> ((shapes of the inputs, their dtype, or one for each), attributes); the operator is run on them
SHIFTED = {"zero_point": -128, "dtype": "int8"}
PARABOLA = {"quadratic": 1, "linear": 2, "constant": 3, "period": 4, "levels": 256}
GOOD = {
    "quantize": ([IMAGE], "float32", {"scale": 0.5, "zero_point": 3, "ties_away": True}),
    "expect_numbers": ([(1, 16)], "int8", {}),
    "dequantize": ([IMAGE], "int8", {"scale": 0.5, "zero_point": 3}),
    "recode": ([IMAGE], "uint8", {}),
    "chain": ([IMAGE], "uint8", {"stages": [["recode", {}], ["reshape", {"shape": [12, 63]}]]}),
    "pad": ([(2, 3)], "int8", {"pads": [[1, 0], [2, 3]], "value": -5}),
    "reshape": ([IMAGE], "float32", {"shape": [12, 63]}),
    "transpose": ([IMAGE], "int8", {"axes": [0, 2, 3, 1]}),
    "concatenate": ([(2, 3), (2, 5), (2, 1)], "int8", {"axis": 1}),
    "strided_slice": ([(4, 9)], "int8", {"begin": [3, 1], "strides": [-1, 4], "shape": [4, 2]}),
    "pack": ([IMAGE], "int8", {"batch": 4, "block": 4, "layout": "NHWC"}),
    "fold_windows": ([IMAGE], "int8", FOLD | {"layout": "NHWC"}),
    "unpack": ([(1, 2, 7, 9, 4, 4)], "int8", {"n": 2, "c": 6, "shape": [2, 6, 63]}),
    "lanes": ([(1, 16, 4, 2)], "int8", {"block": 16, "shape": [4, 32]}),
    "unpack_planes": ([(2, 1, 2, 4, 4)], "int8", {"n": 2, "c": 6, "shape": [6, 2]}),
    "unpack_softmax": (
        [(1, 2, 4, 4)],
        "int8",
        {"n": 2, "c": 6, "shape": [2, 6], "axis": 1, "multiplier": 1 << 30, "exponent": 20},
    ),
    "accumulators": ([(1, 2, 4, 4)] * 4, "int8", {"n": 2, "c": 6}),
    "softmax": ([(2, 9)], "int8", {"axis": 1, "multiplier": 1 << 30, "exponent": 20}),
    "conv2d_accumulators": ([IMAGE], "int8", CONV),
    "conv_transpose2d_accumulators": ([IMAGE], "int8", BACK),
    "dense_accumulators": ([(2, 6)], "int8", DENSE),
    "requantise": ([IMAGE], "int32", PER_CHANNEL | {"low": -5, "contract": "single"}),
    "rescale": ([IMAGE], "int8", POINTS | R),
    "add": ([IMAGE, (6, 1, 1)], "int8", ADD),
    "multiply": ([(6, 1), (1, 4)], "int8", {"zero_points": [1, 2, 3]} | R),
    "lookup": ([IMAGE], "int8", {"table": np.arange(256).astype(np.int8)}),
    "max_pool": ([IMAGE], "int8", POOL | {"pads": [1, 0, 1, 1]}),
    "average_pool": ([IMAGE], "int8", POOL | POINTS | R),
    "exact_average_pool": ([IMAGE], "int8", POOL | {"pads": [1, 0, 1, 1]}),
    "mean": ([IMAGE], "int8", {"axes": [2, 3], "shape": [2, 6]} | POINTS | R),
    "dense_int16": ([(2, 6)], "int8", DENSE | {"multiplier": FIVE, "exponent": FIVE}),
    "filter_int16": ([(2, 4, 3)], "int16", FILTER | R),
    "narrow": ([IMAGE], "int16", {}),
    "rescale_integers": ([IMAGE], "int16", {"dtype": "int32", "x_zero_point": 300, "zero_point": -9} | R),
    "lstm_step": (
        [(2, 1, 12), (2, 12), (2, 3)],
        "int16",
        {"zero_point": 5, "cell_bits": 4, "clip": 9} | R,
    ),
    "lstm": ([(2, 4, 12), (2, 3), (2, 3)], "int16 int8 int16", LSTM | R),
    "take": ([IMAGE], "float32", {"indices": [[1], [], [6, 0, 0], [8, 8]]}),
    "resize_bilinear": ([IMAGE], "int8", {"size": [4, 18], "align_corners": False, "half_pixel_centers": True}),
    "maximum": ([IMAGE, (6, 1, 1)], "int8", {}),
    "minimum": ([(6, 1), (1, 4)], "int8", {}),
    "lookup_pair": ([IMAGE, (6, 1, 1)], "uint8 int8", {"table": np.zeros((256, 256), np.int8)}),
    "prelu": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 2, "exponents": [0, -9]},
    ),
    "squared_difference": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"zero_points": [1, 2, 3], "multipliers": [1 << 30] * 3, "exponents": [0, 0, -9], "shift": 7},
    ),
    "divide": ([IMAGE, (6, 1, 1)], "int8", {"zero_points": [1, 2, 3], "low": -5} | R),
    "l2_normalize": ([IMAGE], "int8", {"axis": 1, "x_zero_point": 3, "scaled_first": True}),
    "log_softmax": ([IMAGE], "int8", {"axis": 1, "scale": 0.5, "output_scale": 0.0625, "zero_point": 127}),
    "number_function": ([IMAGE], "float32", {"function": "sqrt"}),
    "number_binary": ([IMAGE, (6, 1, 1)], "int32", {"function": "floor_div"}),
    "number_reduce": ([IMAGE], "int64", {"function": "reduce_max", "axes": [2, 3], "shape": [2, 6]}),
    "number_dense": ([(2, 7, 6)], "float32", {"weight": np.ones((5, 6), "f4"), "bias": np.zeros(5, "f4")}),
    "compare": ([IMAGE, (6, 1, 1)], "int32", {"function": "less"}),
    "compare_int8": (
        [IMAGE, (6, 1, 1)],
        "int8",
        {"function": "equal", "zero_points": [1, 2], "multipliers": [1 << 30] * 2, "exponents": [0, -9]},
    ),
    "select": ([(6, 1, 1), IMAGE, (6, 1, 1)], "bool int32 int32", {}),
    "cast": ([IMAGE], "uint8", {"dtype": "float32"}),
    "gather": ([(200, 3), (2, 4)], "int32", {"axis": 0}),
    "gather_nd": ([(200, 150, 3), (4, 2)], "int64", {}),
    "detections": ([(1, 9, 4), (1, 9, 4)], "float32", FOUND),
    "batch_matmul": ([(2, 1, 4, 3), (5, 6, 3)], "int8", {"zero_points": [1, 2, 3], "transposed": True} | R),
    "integer_matmul": ([(2, 1, 4, 3), (5, 3, 6)], "int8 int32", {}),
    "requant_shift": ([IMAGE, (6, 1, 1), (1,)], "int32", {"shift": 3, "low": 0, "high": 255} | SHIFTED),
    "integer_softmax": ([(2, 4)], "int8", {"zero_point": -3, "low": -9, "high": 9} | PARABOLA | R),
    "integer_norm": ([(2, 4), (4,), (4,)], "int8 int32 int32", {"shift": 7, "low": -9, "high": 9, "x_zero_point": 4}),
    "rms_norm": ([(2, 4)], "int8", {"multiplier": np.full(4, 9), "exponent": np.zeros(4, "i8")}),
    "rotate": ([(1, 24), (1,)], "int8 int32", {"cosine": np.ones((100, 4), "i2"), "sine": np.ones((100, 4), "i2")}),
    "write_rows": ([(1, 3, 5, 1), (1, 3), (1,)], "int8 int8 int32", {}),
    "write_columns": ([(1, 100, 3, 1), (1, 3, 4, 1), (1,)], "int8 int8 int32", {}),
    "attention": ([(1, 24), (1, 8, 112, 1), (1, 112, 5, 1), (1,)], "int8 int8 int8 int32", ATTENTION),
    "reduce_max": ([IMAGE], "int8", {"axes": [2, 3], "shape": [2, 6]}),
    "reduce_min": ([IMAGE], "int8", {"axes": [0], "shape": [1, 6, 7, 9]}),
    "top_k": ([IMAGE], "float32", {"count": 4, "positions": False}),
    "arg_max": ([IMAGE], "int8", {"axis": 1, "shape": [2, 7, 9], "dtype": "int64", "smallest": True}),
    "float_function": ([IMAGE], "float32", {"function": "Clip", "alpha": 0.0, "beta": 6.0}),
    "float_binary": ([IMAGE, (6, 1, 1)], "float32", {"function": "Mul"}),
    "float_reduce": ([IMAGE], "float32", {"function": "ReduceMean", "axes": [2, 3], "shape": [2, 6]}),
    "float_softmax": ([IMAGE], "float32", {"axis": 1, "logarithm": True}),
    "float_matmul": ([IMAGE, (9, 4)], "float32", {}),
    "float_lstm": ([(3, 2, 4)], "float32", FLOAT_LSTM),
    "float_conv2d": ([IMAGE], "float32", FLOAT_CONV),
    "float_conv_transpose2d": ([IMAGE], "float32", FLOAT_BACK),
    "float_max_pool": ([IMAGE], "float32", POOL | {"pads": [1, 0, 1, 1]}),
    "float_average_pool": ([IMAGE], "float32", POOL | {"pads": [1, 0, 1, 1], "padding_counts": True}),
}


def operands(shapes, dtype):
    """A shape and dtype for each of the inputs."""
    return [Operand(shape, one) for shape, one in zip(shapes, dtype.split() * len(shapes))]


def declared(name, shapes, dtype, attrs):
    return HOST_OPS[name].result(operands(shapes, dtype), attrs)


def test_every_operator_is_among_them():
    assert set(GOOD) == set(HOST_OPS)


@pytest.mark.parametrize("name", GOOD)
def test_the_result_is_the_declared_one(name):
    shapes, dtype, attrs = GOOD[name]
    most = 1 if name in CHECKS else 100
    arrays = [RNG.integers(0, most, x.shape).astype(x.dtype) for x in operands(shapes, dtype)]
    (result,) = HOST_OPS[name](arrays, attrs)
    assert (result.shape, str(result.dtype)) == declared(*(name, *GOOD[name]))[:2]


@pytest.mark.parametrize("name", GOOD)
def test_inputs_of_another_number_dtype_or_rank(name):
    shapes, dtype, attrs = GOOD[name]
    with pytest.raises(ProgramError, match=r"^\d+ inputs: must be"):
        declared(name, [] if name == "concatenate" else [*shapes, shapes[0]], dtype, attrs)
    with pytest.raises(ProgramError, match="^input 0 is complex64: must be "):
        declared(name, shapes, "complex64", attrs)
    if HOST_OPS[name].ranks:
        with pytest.raises(ProgramError, match=r"^input 0 has shape \(2, .*: must have \d( or \d)* dimensions"):
            declared(name, [(2,) * 7] * len(shapes), dtype, attrs)


STRANGE = [None, True, 1.5, "1", [], [[]], {}, float("nan"), -(1 << 62), 1 << 62, 1 << 4000, [1 << 62] * 2, [-1] * 4]


@pytest.mark.parametrize("name", GOOD)
def test_attributes_of_strange_types_and_sizes(name):
    """Refused by name, or harmless: then the operator gives what is declared."""
    shapes, dtype, attrs = GOOD[name]
    most = 1 if name in CHECKS else 100
    arrays = [RNG.integers(0, most, x.shape).astype(x.dtype) for x in operands(shapes, dtype)]
    with pytest.raises(ProgramError, match="^'wings' is unknown"):
        declared(name, shapes, dtype, attrs | {"wings": 2})
    for key in attrs:
        if key not in HOST_OPS[name].defaults:
            with pytest.raises(ProgramError, match=f"^{key} is missing: must be "):
                declared(name, shapes, dtype, {k: v for k, v in attrs.items() if k != key})
        for value in [*STRANGE, np.zeros(3), np.zeros((0, 0), np.int8)]:
            try:
                expected = declared(name, shapes, dtype, attrs | {key: value})
            except ProgramError as exc:
                assert key in str(exc)
                continue
            (result,) = HOST_OPS[name](arrays, attrs | {key: value})
            assert (result.shape, str(result.dtype)) == expected[:2]


LIES = [
    ("pad", {"pads": [[1, 1]]}, "pads has 1 pairs"),
    ("pad", {"value": 200}, "value = 200 is not in int8"),
    ("reshape", {"shape": [5, 5]}, "has not as many elements"),
    ("transpose", {"axes": [0, 1, 1, 2]}, "each once"),
    ("concatenate", {"axis": 2}, "has 2 dimensions"),
    ("concatenate", {"axis": 0}, "differ in more than axis 0"),
    ("strided_slice", {"begin": [4, 1]}, "dimension 0: 4 elements from 4 on, -1 apart, are not in 4"),
    ("strided_slice", {"strides": [-1, 0]}, "dimension 1"),
    ("strided_slice", {"strides": [-1, 9]}, "dimension 1"),
    ("strided_slice", {"begin": [3]}, "must have 2 elements each"),
    ("fold_windows", {"offsets": []}, "at least one"),
    ("fold_windows", {"group": 1 << 30}, "elements on the way: at most"),
    ("fold_windows", {"offsets": [0, 1 << 30]}, "elements on the way: at most"),
    ("unpack_softmax", {"c": 9}, "c = 9: its input .* holds 8"),
    ("unpack_softmax", {"axis": 2}, "has 2 dimensions"),
    ("unpack", {"n": 5}, "n = 5: its input .* holds 4"),
    ("unpack", {"c": 9}, "c = 9: its input .* holds 8"),
    ("unpack", {"shape": [2, 6, 64]}, "has not as many elements"),
    ("softmax", {"axis": 2}, "has 2 dimensions"),
    ("conv2d_accumulators", {"groups": 3}, "needs 9 channels, not 6"),
    ("conv2d_accumulators", {"bias": np.zeros(3, np.int32)}, "differ in channels"),
    ("conv2d_accumulators", {"dilations": [9, 9]}, "do not fit an image"),
    ("conv2d_accumulators", {"strides": [1 << 20] * 2, "pads": [1 << 20] * 4}, "elements on the way: at most"),
    ("conv_transpose2d_accumulators", {"pads": [-1, 0, 0, 0]}, "at least 0"),
    ("conv_transpose2d_accumulators", {"pads": [99, 0, 0, 0]}, "leave nothing"),
    ("conv_transpose2d_accumulators", {"strides": [1 << 20] * 2, "pads": [6 << 20, 8 << 20, 0, 0]}, "on the way"),
    ("dense_accumulators", {"weight": np.ones((5, 7), np.int8)}, "needs 7 features, not 6"),
    ("requantise", {"exponent": np.zeros(5, np.int64)}, "exponent"),
    ("requantise", {"exponent": np.full(6, -33)}, "exponent = int64 .*: must be an array"),
    ("lookup", {"table": np.zeros(255, np.int8)}, "must have 256 entries"),
    ("max_pool", {"kernel": [9, 99]}, "do not fit an image"),
    ("max_pool", {"strides": [0, 1]}, "strides"),
    ("max_pool", {"strides": [1 << 20] * 2, "pads": [1 << 20] * 4}, "elements on the way: at most"),
    ("exact_average_pool", {"pads": [3, 0, 0, 0]}, "padding alone"),
    ("exact_average_pool", {"pads": [0, 0, 9, 0]}, "padding alone"),
    ("mean", {"axes": [2, 2]}, "are not those of"),
    ("mean", {"axes": [2, 4]}, "are not those of"),
    ("mean", {"shape": [2, 5]}, "has not the 12 elements"),
    ("take", {"indices": [[1]]}, "indices of 1 dimensions: its input"),
    ("take", {"indices": [[1], [], [7], []]}, "indices: 7 is not in dimension 2"),
    ("arg_max", {"axis": 4}, "are not those of"),
    ("arg_max", {"shape": [2, 7]}, "has not the 126 elements"),
    ("detections", {"anchors": np.ones((8, 4), np.float32)}, "must be \\(9, 4\\)"),
    ("detections", {"classes": 5}, "classes = 5: the scores have 4"),
    ("detections", {"scales": [1.0, 0.0, 1.0, 1.0]}, "must not be 0"),
    ("detections", {"most": 1 << 20}, "rows, at most 1048576 are allowed"),
    ("gather", {"axis": 2}, "axis = 2: its input has 2 dimensions"),
    ("reduce_max", {"axes": [2, 2]}, "are not those of"),
    ("lookup_pair", {"table": np.zeros((256, 9), np.int8)}, r"table \(256, 9\): must be \(256, 256\)"),
    ("float_function", {"function": "Strange"}, "must be one of Abs"),
    ("float_function", {"alpha": float("nan")}, "must be a number"),
    ("float_reduce", {"axes": [2, 2]}, "are not those of"),
    ("float_softmax", {"axis": 4}, "4 dimensions"),
    ("float_conv2d", {"weight": np.ones((4, 6, 3, 2), np.float32)}, "needs 12 channels, not 6"),
    ("float_conv2d", {"weight": np.full((4, 3, 3, 2), np.inf, np.float32)}, "must be an array, float32"),
    ("float_conv_transpose2d", {"groups": 4}, "in 4 groups does not fit 6 channels"),
    ("float_conv_transpose2d", {"pads": [9, 9, 9, 9]}, "leave nothing"),
    ("float_lstm", {"bias": np.ones(5, np.float32)}, "do not fit 4"),
    ("float_max_pool", {"kernel": [20, 2]}, "do not fit an image"),
    ("float_average_pool", {"padding_counts": False, "pads": [3, 0, 0, 0]}, "hold padding alone"),
]


@pytest.mark.parametrize("name, change, text", LIES, ids=lambda value: str(value)[:40])
def test_what_does_not_fit_together(name, change, text):
    shapes, dtype, attrs = GOOD[name]
    with pytest.raises(ProgramError, match=text):
        declared(name, shapes, dtype, attrs | change)


@pytest.mark.parametrize(
    "name, operands, text",
    [
        ("concatenate", [((2, 3), "int8"), ((2, 5), "float32")], "differ in dtype"),
        ("accumulators", [((1, 2, 4, 4), "int8")] * 3 + [((1, 1, 4, 4), "int8")], "differ in shape"),
        ("number_binary", [((6, 2), "int32"), ((6, 2), "float32")], "inputs differ in dtype: int32 and float32"),
        ("gather", [((6, 2), "int8"), ((1,), "float32")], "positions of dtype float32: must be int32 or int64"),
        ("gather_nd", [((6, 2), "int8"), ((4, 3), "int32")], "positions of 3 dimensions: their input"),
        ("detections", [((1, 9, 5), "float32"), ((1, 9, 4), "float32")], r"boxes \(1, 9, 5\): must be \(1, N, 4\)"),
        ("detections", [((1, 9, 4), "float32"), ((1, 8, 4), "float32")], "must be of 9 boxes"),
        ("multiply", [((6, 2), "int8"), ((1, 4), "int8")], "do not broadcast"),
        ("select", [((2, 3), "int32")] * 3, "the condition is int32: must be bool"),
        ("select", [((4,), "bool"), ((4,), "int32"), ((4,), "int8")], "inputs differ in dtype: int32 and int8"),
        ("float_matmul", [((2, 3), "float32"), ((4, 5), "float32")], "cannot be multiplied"),
        ("float_binary", [((2, 3), "float32"), ((4, 3), "float32")], "do not broadcast"),
    ],
)
def test_operands_that_do_not_fit_together(name, operands, text):
    with pytest.raises(ProgramError, match=text):
        HOST_OPS[name].result([Operand(*operand) for operand in operands], GOOD[name][2])


def test_a_layout_of_images_needs_images():
    with pytest.raises(ProgramError, match=r"^layout = NHWC: its input \(2, 6\) must have 4 dimensions"):
        declared("pack", [(2, 6)], "int8", {"batch": 4, "block": 4, "layout": "NHWC"})
