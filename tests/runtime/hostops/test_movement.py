"""Operators that move values, called as an executable calls them, against plain numpy."""

import json

import numpy as np
import pytest

from tilewright.hw.config import Config
from tilewright.hw.errors import InputError
from tilewright.runtime import layout
from tilewright.runtime.hostops import HOST_OPS, Operand
from tilewright.runtime.layout import pack_activations, pack_dense_activations

RNG = np.random.default_rng(5)
X = RNG.integers(-128, 128, (2, 3, 5, 4)).astype(np.int8)
REAL = RNG.normal(0, 5, (4, 5)).astype(np.float32)


def call(name, *arrays, constants=None, **attrs):
    """The only output of a host operator, its attributes having been through JSON."""
    (result,) = HOST_OPS[name](list(arrays), {**json.loads(json.dumps(attrs)), **(constants or {})})
    return result


@pytest.mark.parametrize("shape", [(3, 5, 4, 2), (3, 7)], ids=str)
@pytest.mark.parametrize("batch, block", [(1, 4), (2, 16), (4, 2)])
def test_accumulators_from_planes_of_packed_layout(shape, batch, block):
    acc = RNG.integers(-(2**31), 2**31, shape).astype(np.int32)
    words = call("pack", acc, batch=batch, block=block)
    planes = [(words >> (8 * k)).astype(np.int8) for k in range(4)]
    result = call("accumulators", *planes, n=shape[0], c=shape[1])
    assert result.dtype == np.int32 and np.array_equal(result, acc)


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


def test_padding_and_reshaping():
    x = RNG.integers(-128, 128, (1, 2, 3, 4)).astype(np.int8)
    y = call("pad", x, pads=[[0, 0], [0, 0], [1, 0], [2, 3]], value=-7)
    assert y.shape == (1, 2, 4, 9) and y.dtype == np.int8
    assert np.array_equal(y[:, :, 1:, 2:6], x) and (y[:, :, 0] == -7).all() and (y[:, :, :, 6:] == -7).all()
    assert call("reshape", x, shape=[1, 24]).shape == (1, 24)


@pytest.mark.parametrize("count, dtype", [(2, np.int16), (3, np.int32), (4, np.int32)])
def test_integers_from_planes_in_one_buffer(count, dtype):
    most = 1 << 8 * count - 1
    values = RNG.integers(-most, most, (3, 7)).astype(dtype)
    words = call("pack", values, batch=2, block=4)
    planes = np.stack([(words >> (8 * k)).astype(np.int8) for k in range(count)])
    found = call("unpack_planes", planes, n=3, c=7, shape=[3, 7, 1])
    assert found.dtype == dtype and np.array_equal(found[..., 0], values)


@pytest.mark.parametrize(("heads", "tokens"), [(4, 1), (4, 3), (8, 1), (3, 1), (3, 4), (6, 1)])
def test_lanes_are_the_packed_bytes(heads, tokens):
    image = RNG.integers(-128, 128, (1, heads, tokens, 5)).astype(np.int8)
    rows = HOST_OPS["lanes"].function(image, block=4, shape=(tokens, -(-heads // 4) * 4 * 5))
    assert rows.tobytes() == layout.pack_blocks(image, 1, 4).tobytes()
    assert np.array_equal(HOST_OPS["lanes"].function(rows, block=4, shape=image.shape), image)


def test_elements_are_taken_by_index():
    y = call("take", X, indices=[[1], [], [4, 4, 0], [3, 2]])
    assert np.array_equal(y, X[1:][:, :, [4, 4, 0]][..., [3, 2]]) and y.dtype == np.int8


def test_computed_positions():
    where = np.array([[3, 1], [0, 4]], np.int32)
    assert np.array_equal(call("gather_nd", REAL, where), REAL[[3, 0], [1, 4]])
    assert np.array_equal(call("gather_nd", REAL, where[:, :1]), REAL[[3, 0]])
    assert np.array_equal(call("gather", REAL, where, axis=1), REAL[:, where])
    for wrong in (np.array([[4, 0]], np.int32), np.array([[0, -1]], np.int32)):
        with pytest.raises(InputError, match=r"^index -?\d\.\.-?\d is outside a dimension of [45]$"):
            call("gather_nd", REAL, wrong)
    with pytest.raises(InputError, match=r"^index 5\.\.5 is outside a dimension of 5$"):
        call("gather", REAL, np.array([5]), axis=1)
