"""Operators that move values, in C."""

import numpy as np
import pytest

RNG = np.random.default_rng(7)
DTYPES = ["int8", "uint8", "int16", "int32", "int64", "float32", "bool"]


def some(shape, dtype="int8"):
    """Any bytes of that dtype, truth values 0 and 1."""
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype == "float32":
        return RNG.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(same, dtype):
    x = some((2, 3, 4, 5), dtype)
    same("reshape", x, shape=[6, 20])
    same("transpose", x, axes=[2, 0, 3, 1])
    same("transpose", x, axes=[0, 1, 2, 3])
    same("concatenate", x, x[:, :1], some((2, 7, 4, 5), dtype), axis=1)
    same("pad", x, pads=[[0, 1], [2, 0], [0, 0], [3, 3]], value=1)
    same("strided_slice", x, begin=[1, 0, 3, 0], strides=[-1, 2, -2, 1], shape=[2, 2, 2, 5])
    same("take", x, indices=[[1, 1, 0], [], [3], [4, 0]])
    same("take", x, indices=[[1, 1, 0], [2, 0], [], []])
    same("take", x, indices=[[], [], [], []])


@pytest.mark.parametrize("block", [1, 4, 16])
def test_rows_whose_channels_are_lanes(same, block):
    same("lanes", some((5, 32 * 3)), block=block, shape=[1, 32, 5, 3])
    same("lanes", some((1, 32, 5, 3)), block=block, shape=[5, 32 * 3])
    same("lanes", some((1, 27, 5, 3)), block=block, shape=[5, -(-27 // block) * block * 3])
    same("lanes", some((5, -(-27 // block) * block * 3)), block=block, shape=[1, 27, 5, 3])


def test_eight_dimensions(same):
    x = some((2, 3, 2, 1, 3, 2, 2, 2))
    same("transpose", x, axes=[7, 5, 3, 1, 0, 2, 4, 6])
    same("take", x, indices=[[1, 0], [2], [], [0, 0], [1, 2], [1], [0], [1, 0, 1]])


def test_one_element(same):
    x = some((1,))
    same("reshape", x, shape=[])
    same("concatenate", x, axis=0)
    same("pad", x, pads=[[2, 3]], value=-128)
    same("pack", some((1, 1)), batch=1, block=16)
    same("transpose", some((1, 1, 1)), axes=[2, 0, 1])


@pytest.mark.parametrize("batch, block", [(1, 16), (2, 4), (4, 3), (1, 1)])
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_blocks(same, batch, block, dtype):
    for n, c in ((1, 1), (3, 16), (4, 7), (5, 40)):
        blocks = -(-n // batch), -(-c // block)
        same("pack", some((n, c), dtype), batch=batch, block=block)
        same("pack", some((n, c, 3, 2), dtype), batch=batch, block=block)
        same("pack", some((n, 3, 2, c), dtype), batch=batch, block=block, layout="NHWC")
        same("unpack", some((*blocks, batch, block), dtype), n=n, c=c, shape=[n * c])
        image = some((*blocks, 3, 2, batch, block), dtype)
        same("unpack", image, n=n, c=c, shape=[n, c, 6])
        same("unpack", image, n=n, c=c, shape=[n, 3, 2, c], layout="NHWC")


def test_planes(same):
    for count in (2, 3, 4):
        same("unpack_planes", some((count, 2, 3, 2, 4)), n=3, c=9, shape=[9, 3])
    same("accumulators", *(some((2, 3, 4, 5, 2, 4)) for _ in range(4)), n=3, c=9)
    same("accumulators", *(some((1, 1, 1, 4)) for _ in range(4)), n=1, c=2)


def test_windows(same):
    for _ in range(40):
        n, c, h, w = RNG.integers(1, 7, 4)
        sizes = {
            k: int(RNG.integers(1, 5)) for k in ("rows", "dilation", "step", "strips", "group", "entries", "block")
        }
        sizes |= {k: int(RNG.integers(0, 4)) for k in ("top", "left")}
        offsets = RNG.integers(0, 9, RNG.integers(1, 4)).tolist()
        value = int(RNG.integers(-128, 128))
        same("fold_windows", some((n, c, h, w)), **sizes, offsets=offsets, value=value)
        same("fold_windows", some((n, h, w, c)), **sizes, offsets=offsets, value=value, layout="NHWC")


def test_stages(same):
    table = some((2, 256))
    x = some((1, 4, 3, 5), "uint8")
    pack = ["pack", {"batch": 1, "block": 4, "layout": "NHWC"}]
    same("chain", x, stages=[["recode", {}], ["lookup", {"table": 1}], pack], tables=table)
    same("chain", x, stages=[["reshape", {"shape": [60]}]])
    same("chain", x, stages=[["reshape", {"shape": [60]}], ["recode", {}], ["reshape", {"shape": [5, 12]}]])
    same(
        "chain",
        some((1, 2, 1, 4)),
        stages=[["unpack", {"n": 1, "c": 6, "shape": [6]}], ["dequantize", {"scale": 0.3, "zero_point": 4}]],
    )
