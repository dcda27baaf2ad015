"""Host operators: called as an executable calls them, against plain numpy."""

import json
from inspect import signature

import numpy as np
import pytest

from tilewright.hw.config import Config
from tilewright.hw.errors import InputError, ProgramError
from tilewright.hw.rounding import requantise
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.layout import pack_activations, pack_dense_activations

RNG = np.random.default_rng(5)
# Programs in files name them: a name that changes makes every .tw file that has it useless.
NAMES = set(
    """accumulators add arg_max attention average_pool batch_matmul cast chain compare compare_int8 concatenate
    conv2d_accumulators conv_transpose2d_accumulators dense_accumulators dense_int16 dequantize detections
    divide exact_average_pool expect_numbers filter_int16 fold_windows gather gather_nd integer_matmul integer_norm
    integer_softmax l2_normalize lanes log_softmax lookup lookup_pair lstm lstm_step max_pool maximum mean minimum
    multiply narrow number_binary number_dense number_function number_reduce pack pad prelu quantize recode
    reduce_max reduce_min requant_shift requantise rescale rescale_integers reshape resize_bilinear rms_norm
    rotate select softmax squared_difference strided_slice take top_k transpose unpack unpack_planes
    unpack_softmax write_columns write_rows""".split()
)
FLOAT_NAMES = set(
    """float_average_pool float_binary float_conv2d float_conv_transpose2d float_function float_lstm float_matmul
    float_max_pool float_reduce float_softmax""".split()
)


def call(name, *arrays, constants=None, **attrs):
    """The only output of a host operator, its attributes having been through JSON."""
    (result,) = HOST_OPS[name](list(arrays), {**json.loads(json.dumps(attrs)), **(constants or {})})
    return result


def test_names_stay():
    assert set(HOST_OPS) == NAMES | FLOAT_NAMES


@pytest.mark.parametrize("name", sorted(NAMES | FLOAT_NAMES))
def test_every_attribute_has_a_kind(name):
    op = HOST_OPS[name]
    found = [p.name for p in signature(op.function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert sorted(op.attrs) == sorted(found) and set(op.defaults) <= set(found)


@pytest.mark.parametrize("shape", [(3, 5, 4, 2), (3, 7)], ids=str)
@pytest.mark.parametrize("batch, block", [(1, 4), (2, 16), (4, 2)])
def test_accumulators_from_planes_of_packed_layout(shape, batch, block):
    acc = RNG.integers(-(2**31), 2**31, shape).astype(np.int32)
    words = call("pack", acc, batch=batch, block=block)
    planes = [(words >> (8 * k)).astype(np.int8) for k in range(4)]
    result = call("accumulators", *planes, n=shape[0], c=shape[1])
    assert result.dtype == np.int32 and np.array_equal(result, acc)


@pytest.mark.parametrize("count, dtype", [(2, np.int16), (3, np.int32), (4, np.int32)])
def test_integers_from_planes_in_one_buffer(count, dtype):
    most = 1 << 8 * count - 1
    values = RNG.integers(-most, most, (3, 7)).astype(dtype)
    words = call("pack", values, batch=2, block=4)
    planes = np.stack([(words >> (8 * k)).astype(np.int8) for k in range(count)])
    found = call("unpack_planes", planes, n=3, c=7, shape=[3, 7, 1])
    assert found.dtype == dtype and np.array_equal(found[..., 0], values)
    attrs = {"n": 3, "c": 7, "shape": [21]}
    assert HOST_OPS["unpack_planes"].result([Operand(planes.shape, "int8")], attrs)[:2] == ((21,), np.dtype(dtype).name)
    with pytest.raises(ProgramError, match="its input has 5 planes of bytes: must have 2 to 4"):
        HOST_OPS["unpack_planes"].result([Operand((5, *planes.shape[1:]), "int8")], attrs)


def test_packing_is_that_of_the_layout_module():
    cfg = Config(batch=2, block_in=8, block_out=4, wgt_bytes=1 << 12, acc_bytes=1 << 12)
    x = RNG.integers(-128, 128, (3, 9, 2, 5)).astype(np.int8)
    assert np.array_equal(call("pack", x, batch=2, block=8), pack_activations(x, cfg))
    assert np.array_equal(call("pack", x[:, :, 0, 0], batch=2, block=8), pack_dense_activations(x[:, :, 0, 0], cfg))


def test_images_are_packed_and_folded_as_they_lie():
    x = RNG.integers(-128, 128, (2, 3, 9, 7)).astype(np.int8)
    nhwc, blocks = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), {"batch": 1, "block": 4}
    assert np.array_equal(call("pack", nhwc, **blocks, layout="NHWC"), call("pack", x, **blocks))
    fold = {"rows": 2, "dilation": 1, "step": 1, "strips": 3, "group": 12, "offsets": [0, 5], "entries": 5}
    fold |= {"top": 1, "left": 1, "value": -3, "block": 8}
    assert np.array_equal(call("fold_windows", nhwc, **fold, layout="NHWC"), call("fold_windows", x, **fold))


def test_blocks_become_nhwc_images_in_one_pass():
    x = RNG.integers(-128, 128, (3, 5, 4, 2)).astype(np.int8)
    packed, facts = call("pack", x, batch=2, block=4), {"n": 3, "c": 5}
    nhwc = x.transpose(0, 2, 3, 1)
    assert np.array_equal(call("unpack", packed, **facts, shape=[3, 4, 2, 5], layout="NHWC"), nhwc)
    assert np.array_equal(call("unpack", packed, **facts, shape=[12, 10], layout="NHWC"), nhwc.reshape(12, 10))


def test_operators_one_after_the_other():
    x, table = RNG.integers(0, 256, (1, 4, 3, 5)).astype(np.uint8), RNG.integers(-128, 128, 256).astype(np.int8)
    stages = [["recode", {}], ["lookup", {"table": 1}], ["pack", {"batch": 1, "block": 4, "layout": "NHWC"}]]
    constants = {"tables": np.stack([table[::-1], table])}
    expected = call("lookup", call("recode", x), constants={"table": table}).transpose(0, 3, 1, 2)
    assert np.array_equal(
        call("chain", x, stages=stages, constants=constants), call("pack", expected, batch=1, block=4)
    )
    result = HOST_OPS["chain"].result([Operand(x.shape, "uint8")], {"stages": stages, **constants})
    assert result[:2] == ((1, 2, 4, 3, 1, 4), "int8")


@pytest.mark.parametrize(
    "stages, message",
    [
        ([["add", {}]], "must be .operator, attributes., one of quantize"),
        ([["recode"]], "must be .operator, attributes."),
        (["recode"], "must be .operator, attributes."),
        ([["chain", {"stages": []}]], "must be .operator, attributes."),
        ([["recode", {"axis": 1}]], "'axis' is unknown"),
        ([["recode", {}], ["recode", {}], ["softmax", {}]], "input 0 is uint8: must be int8"),
        ([["recode", {}], ["lookup", {"table": 0}]], "table = 0: must be the number of one of its 0 tables"),
        ([["recode", {}]] * 17, "stages = "),
    ],
)
def test_stages_that_are_refused(stages, message):
    with pytest.raises(ProgramError, match=message):
        HOST_OPS["chain"].result([Operand((1, 4), "uint8")], {"stages": stages})


def test_softmax_of_blocks():
    x = RNG.integers(-128, 128, (3, 10)).astype(np.int8)
    facts = {"axis": 1, "multiplier": 1 << 30, "exponent": 20}
    packed = call("pack", x, batch=2, block=4)
    assert np.array_equal(
        call("unpack_softmax", packed, n=3, c=10, shape=[3, 10], **facts), call("softmax", x, **facts)
    )


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3)], ids=str)
@pytest.mark.parametrize("contract", ["double", "single"])
def test_requantisation_per_channel(shape, contract):
    acc = RNG.integers(-(2**20), 2**20, shape).astype(np.int32)
    constants = {"multiplier": np.array([2**30, 2**31 - 1, 0]), "exponent": np.array([-9, -13, 0])}
    result = call("requantise", acc, constants=constants, zero_point=-3, low=-50, high=60, contract=contract)
    for c in range(3):
        m, e = constants["multiplier"][c], constants["exponent"][c]
        assert np.array_equal(result[:, c], requantise(acc[:, c], m, e, -3, -50, 60, contract))


def test_padding_and_reshaping():
    x = RNG.integers(-128, 128, (1, 2, 3, 4)).astype(np.int8)
    y = call("pad", x, pads=[[0, 0], [0, 0], [1, 0], [2, 3]], value=-7)
    assert y.shape == (1, 2, 4, 9) and y.dtype == np.int8
    assert np.array_equal(y[:, :, 1:, 2:6], x) and (y[:, :, 0] == -7).all() and (y[:, :, :, 6:] == -7).all()
    assert call("reshape", x, shape=[1, 24]).shape == (1, 24)


def test_max_pooling_never_takes_the_padding():
    x = np.full((1, 1, 2, 2), -128, np.int8)
    assert (call("max_pool", x, kernel=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]) == -128).all()


def test_average_pooling_removes_the_zero_point():
    x = np.full((1, 1, 4, 4), 9, np.int8)
    attrs = {"kernel": [2, 4], "strides": [2, 1], "x_zero_point": 5, "zero_point": -1}
    y = call("average_pool", x, **attrs, multiplier=2**30, exponent=-2)  # one eighth
    assert y.shape == (1, 1, 2, 1) and (y == 4 * 8 // 8 - 1).all()


def test_quantisation_of_what_is_no_number():
    with pytest.raises(InputError, match="the input holds NaN"):
        call("quantize", np.array([np.nan], np.float32), scale=1.0, zero_point=0)


def test_flags_of_values_that_are_no_numbers_are_refused():
    flags = np.zeros((1, 16), np.int8)
    assert np.array_equal(call("expect_numbers", flags), flags)
    flags[0, 7] = 2
    with pytest.raises(InputError, match="NaN"):
        call("expect_numbers", flags)


def test_quantize_rounds_the_quotient_to_nearest():
    ties = np.arange(0.5, 128, dtype=np.float32)
    below, above = (np.nextafter(ties, np.float32(end)) for end in (0, 999))
    for sign in (1, -1):
        away, before, behind = (
            call("quantize", sign * x, scale=1.0, zero_point=0, ties_away=True) for x in (ties, below, above)
        )
        wanted = np.clip(sign * np.arange(1, 129), -128, 127)
        assert np.array_equal(away, wanted) and np.array_equal(behind, wanted)
        assert np.array_equal(before, sign * np.arange(128))


def test_quantise_and_back():
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    q = call("quantize", x, scale=0.25, zero_point=-5)
    assert q.dtype == np.int8 and np.array_equal(q, np.arange(-16, 17) - 5)
    y = call("dequantize", q, scale=0.25, zero_point=-5)
    assert y.dtype == np.float32 and np.array_equal(x, y)


def test_recoding_moves_by_128():
    x = np.arange(256).astype(np.uint8).reshape(16, 16)
    q = call("recode", x)
    assert q.dtype == np.int8 and np.array_equal(q, x.astype(int) - 128)
    assert np.array_equal(call("recode", q), x) and call("recode", q).dtype == np.uint8


def test_what_stages_make_on_the_way_is_limited():
    stages = [["pack", {"batch": 1 << 24, "block": 4}], ["unpack", {"n": 1, "c": 4, "shape": [1, 4]}]]
    with pytest.raises(ProgramError, match="makes an array of 67,108,864 elements on the way: at most"):
        HOST_OPS["chain"].result([Operand((1, 4), "int8")], {"stages": stages})
