"""Moves of channels, cuts and padding, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Concat, Pad, StridedSlice, Take, Tensor
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.movement import Move, move_channels, move_of
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def tensor(name, shape, data=None):
    return Tensor(name, shape, scale=0.1, zero_point=3, data=data)


def concatenation(size, *channels, n=1):
    parts = tuple(tensor(f"x{k}", (n, c, *size)) for k, c in enumerate(channels))
    return Concat("op", parts, tensor("y", (n, sum(channels), *size)), 1)


def padding(shape, *pads, value=-7):
    pads = ((0, 0), *pads)
    grown = tuple(n + sum(pair) for n, pair in zip(shape, pads))
    return Pad("op", (tensor("x", shape),), tensor("y", grown), pads, value)


def cut(shape, begin, end, strides):
    found = tuple(len(range(b, e, s)) for b, e, s in zip(begin, end, strides))
    return StridedSlice("op", (tensor("x", shape),), tensor("y", found), begin, strides)


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("channels", [(3, 5), (24, 4, 30), (17, 16), (1, 1, 1, 33)])
def test_parts_of_blocks_are_joined(exact, name, channels):
    exact(concatenation((5, 7), *channels), cfg=PRESETS[name])
    exact(concatenation((2, 3), *channels, n=2), cfg=PRESETS[name])
    exact(concatenation((), *channels), cfg=PRESETS[name])


def test_constant_parts_are_joined(exact):
    data = np.random.default_rng(0).integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    op = concatenation((4, 4), 3, 2, 8)
    exact(Concat("op", (op.inputs[0], tensor("k", data.shape, data), op.inputs[2]), op.output, 1))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("before, after", [(0, 4), (3, 0), (16, 20), (0, 30), (1, 1)])
def test_channels_are_added(exact, name, before, after):
    exact(padding((1, 24, 6, 5), (before, after), (0, 0), (0, 0)), cfg=PRESETS[name])
    exact(padding((2, 9, 3, 4), (before, after), (1, 0), (2, 15), value=0), cfg=PRESETS[name])
    exact(padding((1, 9), (before, after)), cfg=PRESETS[name])


def test_images_are_padded(exact):
    exact(padding((1, 20, 30, 31), (0, 0), (1, 2), (0, 3)))
    exact(padding((1, 20, 1, 1), (0, 0), (4, 0), (0, 3), value=-128))


@pytest.mark.parametrize("begin, end, strides", [
    ((0, 5, 0, 0), (1, 25, 9, 8), (1, 1, 1, 1)),
    ((0, 0, 1, 2), (1, 40, 9, 8), (1, 1, 2, 3)),
    ((0, 1, 0, 0), (1, 40, 9, 8), (1, 2, 1, 1)),
    ((0, 39, 3, 1), (1, 2, 4, 2), (1, -3, 1, 1)),
])  # fmt: skip
@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_cuts(exact, name, begin, end, strides):
    exact(cut((1, 40, 9, 8), begin, end, strides), cfg=PRESETS[name])


def test_vectors_are_cut(exact):
    exact(cut((1, 40), (0, 7), (1, 31), (1, 1)))


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_channels_are_shuffled(exact, groups):
    order = tuple(np.arange(36 * groups).reshape(groups, -1).T.reshape(-1).tolist())
    shape = (1, len(order), 5, 6)
    exact(Take("op", (tensor("x", shape),), tensor("y", shape), ((), order, (), ())))


def test_large_images_are_cut_into_rows(exact):
    op = padding((1, 24, 64, 64), (0, 4), (0, 0), (0, 0))
    assert 64 * 64 > CFG.acc_depth // 2  # accumulators of a bank
    found = predict(exact(op)).cycles
    assert cycles(move_channels, op, CFG) == pytest.approx(found, rel=0.01) and found < 2.6 * 2 * 64 * 64


@pytest.mark.parametrize("seed", range(12))
def test_random_cuts(exact, seed):
    rng = np.random.default_rng(seed)
    shape = (1, int(rng.integers(1, 50)), *map(int, rng.integers(1, 13, 2)))
    begin = tuple(int(rng.integers(0, n)) for n in shape)
    end = tuple(int(rng.integers(b + 1, n + 1)) for b, n in zip(begin, shape))
    exact(cut(shape, begin, end, (1, *map(int, rng.integers(1, 4, 3)))))


def test_what_a_move_is():
    assert move_of(concatenation((2, 2), 1, 2)) == Move(((0, 0), (1, 0), (1, 1)))
    assert move_of(padding((1, 2, 3, 3), (1, 0), (1, 2), (0, 3))) == Move(
        (None, (0, 0), (0, 1)), pads=(1, 2, 0, 3), value=-7
    )
    assert move_of(cut((1, 4, 9, 8), (0, 1, 2, 3), (1, 4, 9, 8), (1, 2, 3, 4))) == Move(
        ((0, 1), (0, 3)), (2, 3), (3, 4)
    )
    joined = Concat("op", (tensor("x", (1, 2, 3, 3)),) * 2, tensor("y", (1, 2, 6, 3)), 2)
    assert move_of(joined) is None


def test_what_does_not_fit():
    wide, high = padding((1, 3, 4, 1500), (0, 1), (0, 0), (0, 0)), padding((1, 3, 4, 4), (0, 1), (16, 0), (0, 0))
    assert why_not(move_channels, wide, CFG) == (
        "rows of 1500 pixels, 1500 with their padding, of all channels that they need, do not fit"
    )
    assert why_not(move_channels, high, CFG) == "padding of 16: at most 15"
    fitting = padding((1, 3, 4, 4), (0, 1), (0, 0), (0, 0))
    assert not why_not(move_channels, fitting, CFG) and why_not(move_channels, fitting, PRESETS["vta"])
