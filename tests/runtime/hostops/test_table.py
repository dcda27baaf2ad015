"""Every host operator: its name, its meaning, the kinds of its attributes, the declared result, and steps that lie."""

from inspect import signature

import numpy as np
import pytest

from tests.runtime.hostops.cases import EXAMPLES, MEANINGS, check, example, operands
from tests.runtime.hostops.steps import REFUSED, cases, without_c
from tests.runtime.hostops.token_cases import REFUSED_INPUTS
from tilewright.hw.errors import InputError, ProgramError
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.hostops.row import HostOp


def declared(name, inputs=None, **changes):
    """The result for the operands and attributes of the example, some of them changed."""
    found = [*operands(name)]
    for k, shape in (inputs or {}).items():
        found[k] = shape if isinstance(shape, Operand) else Operand(shape, found[k].dtype)
    return HOST_OPS[name].result(found, EXAMPLES[name][2] | changes)


def test_names_stay():
    """Programs in files name them: a name that changes makes every .tw file that has it useless."""
    assert set(HOST_OPS) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_attribute_has_a_kind(name):
    op = HOST_OPS[name]
    found = [p.name for p in signature(op.function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert [*op.attrs] == found and {*op.kinds} <= {*found}


STEPS: dict[str, list] = {name: [(example(name), attrs)] for name, (_, _, attrs) in EXAMPLES.items()} | cases()
for one, inputs, facts in without_c():
    STEPS[one].append((inputs, facts))


@pytest.mark.parametrize("name", EXAMPLES)
def test_numpy_gives_what_is_meant_and_declared(name):
    for arrays, attrs in STEPS[name]:
        result = check(name, arrays, attrs)
        wanted = HOST_OPS[name].result([Operand(x.shape, str(x.dtype)) for x in arrays], attrs)
        assert (result.shape, str(result.dtype)) == wanted[:2], attrs


def test_every_operator_has_a_meaning():
    """That of detections is in test_functions.py."""
    assert {*EXAMPLES} - {*MEANINGS} == {"detections"}


@pytest.mark.parametrize("name, arrays, attrs, text", REFUSED, ids=[f"{row[0]}-{k}" for k, row in enumerate(REFUSED)])
def test_values_that_are_not_allowed(name, arrays, attrs, text):
    with pytest.raises(InputError, match=text):
        HOST_OPS[name](arrays, attrs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_inputs_of_another_number_dtype_or_rank(name):
    op, inputs, attrs = HOST_OPS[name], operands(name), EXAMPLES[name][2]
    with pytest.raises(ProgramError, match=r"^\d+ inputs: must be"):
        op.result([] if name == "concatenate" else [*inputs, *inputs] * 2, attrs)
    with pytest.raises(ProgramError, match="^input 0 is complex64: must be "):
        declared(name, {0: Operand(inputs[0].shape, "complex64")})
    if op.ranks:
        with pytest.raises(ProgramError, match=r"^input 0 has shape \(2, .*: must have \d( or \d)* dimensions"):
            declared(name, {0: (2,) * 8})


STRANGE = [None, True, 1.5, "1", [], [[]], {}, float("nan"), -(1 << 62), 1 << 62, 1 << 4000, [1 << 62] * 2, [-1] * 4]


@pytest.mark.parametrize("name", EXAMPLES)
def test_attributes_of_strange_types_and_sizes(name):
    """Refused by name, or harmless: then the operator gives what is declared."""
    attrs = EXAMPLES[name][2]
    with pytest.raises(ProgramError, match="^'wings' is unknown"):
        declared(name, wings=2)
    for key in attrs:
        if key not in HOST_OPS[name].defaults:
            with pytest.raises(ProgramError, match=f"^{key} is missing: must be "):
                HOST_OPS[name].result(operands(name), {k: v for k, v in attrs.items() if k != key})
        for value in [*STRANGE, np.zeros(3), np.zeros((0, 0), np.int8)]:
            try:
                expected = declared(name, **{key: value})
            except ProgramError as exc:
                assert key in str(exc)
                continue
            (result,) = HOST_OPS[name](example(name), attrs | {key: value})
            assert (result.shape, str(result.dtype)) == expected[:2]


PACK, UNPACK = ["pack", {"batch": 1 << 24, "block": 8}], {"n": 2, "c": 6, "shape": [2, 378]}
ATTRIBUTES = [
    ("pad", {"pads": [[1, 1]]}, "pads has 1 pairs"),
    ("pad", {"value": 200}, "value = 200 is not in int8"),
    ("reshape", {"shape": [5, 5]}, "has not as many elements"),
    ("transpose", {"axes": [0, 1, 1, 2]}, "each once"),
    ("concatenate", {"axis": 2}, "has 2 dimensions"),
    ("concatenate", {"axis": 0}, "differ in more than axis 0"),
    ("strided_slice", {"begin": [4, 1]}, "dimension 0: 4 elements from 4 on, -1 apart, are not in 4"),
    ("strided_slice", {"strides": [-1, 0]}, "dimension 1"),
    ("strided_slice", {"strides": [-1, 9]}, "dimension 1"),
    ("strided_slice", {"strides": [-1, 8]}, "dimension 1: 2 elements from 1 on, 8 apart, are not in 9"),
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
    ("conv2d_accumulators", {"weight": np.ones((4, 2, 3, 2), np.int8), "groups": 3}, "do not divide into 3 groups"),
    ("conv2d_accumulators", {"bias": np.zeros(3, np.int32)}, "differ in channels"),
    ("conv2d_accumulators", {"dilations": [9, 9]}, "do not fit an image"),
    ("conv2d_accumulators", {"strides": [1 << 20] * 2, "pads": [1 << 20] * 4}, "elements on the way: at most"),
    ("conv_transpose2d_accumulators", {"pads": [-1, 0, 0, 0]}, "at least 0"),
    ("conv_transpose2d_accumulators", {"pads": [99, 0, 0, 0]}, "leave nothing"),
    ("conv_transpose2d_accumulators", {"strides": [1 << 20] * 2, "pads": [6 << 20, 8 << 20, 0, 0]}, "on the way"),
    ("dense_accumulators", {"weight": np.ones((5, 7), np.int8)}, "needs 7 features, not 6"),
    ("requantise", {"exponent": np.zeros(5, np.int64)}, "exponent"),
    ("requantise", {"exponent": np.full(6, -33)}, "exponent = int64 .*: must be an array"),
    ("requantise", {"steps": np.zeros(5, np.int32)}, "steps"),
    ("requantise", {"steps": np.full(6, 256, np.int32)}, "steps = int32 .*: must be an array"),
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
    ("lookup_channels", {"table": np.zeros((5, 256), np.int8)}, r"table \(5, 256\): its input .* needs \(6, 256\)"),
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
    ("float_resize", {"row_weights": np.ones((2, 2), np.float32)}, r"row_weights \(2, 2\): neighbours are \(3, 2\)"),
    ("float_resize", {"column_neighbours": np.array([[8, 9]], np.int32)}, "has 9: the images have 9 columns"),
    ("rotate", {"sine": np.ones((100, 3), np.int16)}, "differ in shape"),
    ("write_columns", {"tokens": 3}, "tokens = 3: the block has 4 positions"),
    ("attention", {"seen": 113}, "seen = 113: the cache has 112 positions"),
    ("attention", {"key_groups": [0, 0, 3]}, "key_groups has 3 lanes: must have half of"),
    ("attention", {"value_groups": [0] * 4}, "value_groups has 4 lanes: values are"),
    ("attention", {"value_groups": [7] * 5}, r"value_groups has \[7\], which key_groups has not"),
    ("lstm", {"weight": np.ones((12, 4), np.int8)}, "weight .12, 4.: gates .2, 4, 12. need .12, 3."),
    ("lstm", {"bias": np.ones(11, np.int32)}, "bias .11,.: gates"),
    ("lstm", {"cell_bits": 7}, "cell_bits = 7: must be an integer from 0 to 6"),
    ("dense_int16", {"multiplier": np.ones(3, np.int32)}, "multiplier .3,.: weight .5, 6. needs one per row"),
    ("filter_int16", {"bias": np.ones(3, np.int32)}, "bias of 3 units: the 4 filters do not divide"),
    ("requant_shift", {"zero_point": 0}, "not within int8"),
    ("chain", {"stages": [["add", {}]]}, "must be .operator, attributes., one of quantize"),
    ("chain", {"stages": [["recode"]]}, "must be .operator, attributes."),
    ("chain", {"stages": ["recode"]}, "must be .operator, attributes."),
    ("chain", {"stages": [["chain", {"stages": []}]]}, "must be .operator, attributes."),
    ("chain", {"stages": [["recode", {"axis": 1}]]}, "'axis' is unknown"),
    ("chain", {"stages": [["recode", {}], ["recode", {}], ["softmax", {}]]}, "input 0 is uint8: must be int8"),
    ("chain", {"stages": [["recode", {}], ["lookup", {"table": 0}]]}, "table = 0: must be the number of one of its 0"),
    (
        "chain",
        {"stages": [["recode", {}], ["lookup", {"table": 2}]], "tables": np.zeros((2, 256), np.int8)},
        "table = 2: must be the number of one of its 2",
    ),
    ("chain", {"stages": [["recode", {}]] * 17}, "stages = "),
    ("chain", {"stages": [PACK, ["unpack", UNPACK]]}, "makes an array of .* elements on the way: at most"),
]


@pytest.mark.parametrize("name, change, text", ATTRIBUTES, ids=lambda value: str(value)[:40])
def test_attributes_that_do_not_fit(name, change, text):
    with pytest.raises(ProgramError, match=text):
        declared(name, **change)


FLOAT, INT16, INT32 = (lambda *shape, dtype=dtype: Operand(shape, dtype) for dtype in ("float32", "int16", "int32"))
BOOL = Operand((4,), "bool")
INPUTS = [
    ("concatenate", {1: FLOAT(2, 5)}, {}, "differ in dtype"),
    ("accumulators", {3: (1, 1, 4, 4)}, {"c": 4}, "differ in shape"),
    ("pack", {0: (2, 6)}, {}, r"^layout = NHWC: its input \(2, 6\) must have 4 dimensions"),
    ("unpack_planes", {0: (5, 1, 2, 4, 4)}, {}, "its input has 5 planes of bytes: must have 2 to 4"),
    ("pad_by", {1: FLOAT(1)}, {}, r"input 1 is float32: must be"),
    ("pad_by", {1: Operand((2,), "uint8")}, {}, r"must be uint8 of shape \(1,\)"),
    ("pad_by", {0: Operand((2, 3), "uint8")}, {}, "input 0 is uint8: must be int8"),
    ("range_scale", {0: FLOAT(3)}, {}, r"the ends have shape \(3,\): must be \(2,\)"),
    ("range_zero_point", {1: FLOAT(2)}, {}, r"the scale has shape \(2,\): must be one number"),
    ("quantize_by", {1: FLOAT(2)}, {}, r"the scale or zero point has shape \(2,\)"),
    ("quantize_by", {2: FLOAT(1)}, {}, "inputs are float32, float32, float32: must be float32, float32, uint8"),
    ("subtract_zero_point", {0: INT32(2, 5)}, {}, r"sums \(6,\): axis 1 has others"),
    ("scale_sums", {2: FLOAT(5)}, {}, r"a factor has shape \(5,\): axis 1 has others"),
    ("scale_bytes", {0: INT32(3, 6)}, {}, r"sums \(3, 6\): must be those of two bytes"),
    ("scale_bytes", {0: INT32(6)}, {}, r"sums \(6,\): must have at least 2 dimensions"),
    ("scale_bytes", {0: INT32(2, 5)}, {}, r"weight_scale \(6,\): sums \(2, 5\) need \(5,\)"),
    ("quantize", {}, {"zero_point": 128}, "128 is not int8"),
    ("lanes", {0: (1, 12)}, {"block": 4, "shape": [1, 4, 1, 2]}, "blocks of 4: its input is"),
    ("lanes", {0: (1, 12)}, {"block": 3, "shape": [1, 4, 1, 3]}, "blocks of 3: its input is"),
    ("number_binary", {1: FLOAT(6, 2)}, {}, "inputs differ in dtype: int32 and float32"),
    ("gather", {1: FLOAT(1)}, {}, "positions of dtype float32: must be int32 or int64"),
    ("gather_nd", {0: (6, 2), 1: (4, 3)}, {}, "positions of 3 dimensions: their input"),
    ("detections", {0: (1, 9, 5)}, {}, r"boxes \(1, 9, 5\): must be \(1, N, 4\)"),
    ("detections", {1: (1, 8, 4)}, {}, "must be of 9 boxes"),
    ("multiply", {0: (6, 2)}, {}, "do not broadcast"),
    ("select", {0: INT32(2, 3)}, {}, "the condition is int32: must be bool"),
    ("select", {0: BOOL, 1: INT32(4), 2: Operand((4,), "int8")}, {}, "inputs differ in dtype: int32 and int8"),
    ("float_matmul", {0: (2, 3), 1: (4, 5)}, {}, "cannot be multiplied: 3 is not 4"),
    ("float_binary", {0: (2, 3), 1: (4, 3)}, {}, "do not broadcast"),
    ("batch_matmul", {1: (5, 6, 4)}, {}, "cannot be multiplied: 3 is not 4"),
    ("batch_matmul", {0: (2, 3, 4), 1: (2, 3, 5)}, {"images": True}, "are not images of one row"),
    ("batch_matmul", {0: (3,)}, {}, "are not matrices"),
    ("batch_matmul", {0: (2, 2, 3), 1: (3, 5, 3)}, {}, "do not broadcast"),
    ("integer_matmul", {0: (2, 3), 1: (4, 5)}, {}, "3 is not 4"),
    ("integer_norm", {1: (2,)}, {}, "its input is"),
    ("rms_norm", {0: (1, 3)}, {}, r"multiplier and exponent .*: the input is \(1, 3\)"),
    ("rotate", {0: (1, 12)}, {}, "no chunks of 8, twice the angles"),
    ("rotate", {0: (1, 1, 8)}, {}, r"must be \(tokens, chunks\)"),
    ("rotate", {0: (101, 8)}, {}, "more tokens than the 100 positions of the angles"),
    ("rotate", {1: Operand((1,), "int8")}, {}, r"the position is int8 \(1,\): must be int32"),
    ("write_rows", {1: (1, 4)}, {}, r"rows \(1, 4\) do not fit"),
    ("write_rows", {1: (6, 3)}, {}, r"rows \(6, 3\) do not fit"),
    ("write_rows", {0: (2, 3, 5, 1)}, {}, "a cache is .*: must have 4 dimensions, of 1 at both ends"),
    ("write_rows", {0: INT32(1)}, {}, "an input is .*int32.*: must be int8"),
    ("write_columns", {1: (1, 2, 4, 1)}, {}, "does not fit"),
    ("write_columns", {1: (1, 3, 3, 1)}, {}, "does not fit"),
    ("write_columns", {1: (1, 3, 4)}, {}, "a cache is"),
    ("attention", {1: (1, 8, 32, 1)}, {}, "keys .*, values .*: at most 8192 positions"),
    ("attention", {1: (1, 8, 9000, 1), 2: (1, 9000, 5, 1)}, {}, "at most 8192 positions"),
    ("attention", {2: (1, 112, 5)}, {}, "a cache is"),
    ("attention", {0: (40, 24)}, {"seen": 39}, "are of more tokens than the 39 positions that are read"),
    ("attention", {0: (1, 15)}, {}, "have no chunks of 8, a key's lanes"),
    ("filter_int16", {0: (2, 4, 2)}, {}, "weight .4, 3. needs windows of its shape"),
    ("lstm", {1: INT16(2, 3)}, {}, "must be int16, int8, int16"),
    ("lstm", {0: (2, 12)}, {}, "gates .2, 12.: must have 3 dimensions"),
    ("lstm", {0: (2, 4, 11)}, {}, "11 do not divide into 4 gates"),
    ("lstm", {0: (2, 4, 8)}, {"coupled": True}, "8 do not divide into 3 gates"),
    ("lstm", {1: (2, 4)}, {}, "hidden values .2, 4.: gates .2, 4, 12. need .2, 3."),
    ("lstm", {2: (1, 3)}, {}, "cells .1, 3.: gates"),
    ("lstm_step", {0: INT32(2, 1, 12)}, {}, "gates and cells are .*: must be int16"),
    ("lstm_step", {0: (2, 2, 12)}, {}, "gates .2, 2, 12.: must have 3 dimensions, of one step"),
    ("lstm_step", {0: (2, 1, 11)}, {}, "11 do not divide into 4 gates"),
    ("lstm_step", {1: (2, 11)}, {}, "own sums .2, 11.: gates .2, 1, 12. need .2, 12."),
    ("lstm_step", {2: (2, 4)}, {}, "cells .2, 4.: gates"),
]
INPUTS += REFUSED_INPUTS


@pytest.mark.parametrize("name, inputs, changes, text", INPUTS, ids=[f"{row[0]}-{k}" for k, row in enumerate(INPUTS)])
def test_inputs_that_do_not_fit(name, inputs, changes, text):
    with pytest.raises(ProgramError, match=text):
        declared(name, inputs, **changes)


def test_a_norm_needs_its_weights():
    with pytest.raises(ProgramError, match="1 inputs: must be 2 or 3"):
        HOST_OPS["integer_norm"].result(operands("integer_norm")[:1], EXAMPLES["integer_norm"][2])


def test_what_is_made_on_the_way_is_limited():
    """64 times the elements of inputs and result, and 2**20."""
    for scratch, fine in ((64 * 20 + (1 << 20), True), (64 * 20 + (1 << 20) + 1, False)):
        op = HostOp(lambda x: x, lambda inputs, a, scratch=scratch: Operand((10,), "int8", scratch))
        if fine:
            assert op.result([Operand((10,), "int8")], {}).scratch == scratch
        else:
            with pytest.raises(ProgramError, match="array of 1,049,857 elements on the way: at most 1,049,856"):
                op.result([Operand((10,), "int8")], {})
