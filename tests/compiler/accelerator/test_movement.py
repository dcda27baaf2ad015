"""Which operators that move elements are copies, which are products, and which the accelerator refuses."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import Concat, Pad, StridedSlice, Take, Tensor
from tilewright.compiler.kernels import table
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.movement import concatenate, cut, join_channels, move_channels
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem, Op

CFG = PRESETS["pynq_z1"]
X = Tensor("x", (1, 64, 80, 7))
LAST_EXTENSION = CFG.replace(extensions=sorted(CFG.extensions - {"overwrite"}))


def part(begin, shape, strides=(1,) * 4, x=X):
    return StridedSlice("op", (x,), Tensor("y", shape), begin, strides)


def test_whole_blocks_are_copied():
    op = Concat("op", (X, X), Tensor("y", (1, 128, 80, 7)), 1)
    assert table.chosen(op, CFG) is concatenate and "computed at their place" in why_not(join_channels, op, CFG)


def test_the_faster_one_of_copies_and_products_cuts():
    for op in (part((0, 16, 0, 0), (1, 32, 9, 7)), part((0, 0, 0, 1), (1, 16, 4, 3))):
        found = {record: cycles(record, op, CFG) for record in (move_channels, cut)}
        assert table.chosen(op, CFG) is min(found, key=found.__getitem__)
        assert table.chosen(op, LAST_EXTENSION) is cut


@pytest.mark.parametrize(
    ("begin", "shape", "size"), [((0, 16, 2, 0), (1, 20, 3, 7), 42), ((0, 0, 2, 1), (1, 16, 2, 3), 6)]
)
def test_pieces_are_as_long_as_they_can_be(exact, begin, shape, size):
    launch = exact(part(begin, shape), cfg=LAST_EXTENSION)
    stores = [f for f in Isa(CFG).decode(launch.insn) if f.get("mem") == Mem.OUT and f["op"] == Op.STORE]
    assert [f["y_size"] * f["x_size"] for f in stores] == [size]


def test_lanes_columns_and_rows_are_products():
    parts = Tensor("a", (1, 3, 80, 7)), X
    pads = ((0, 0), (0, 4), (0, 0), (0, 0))
    ops = [part((0, 8, 0, 0), (1, 16, 80, 7))]
    ops += [part((0, 0, 0, 0), (1, 64, 40, 7), (1, 1, 2, 1)), Concat("op", parts, Tensor("y", (1, 67, 80, 7)), 1)]
    ops += [Pad("op", (X,), Tensor("y", (1, 68, 80, 7)), pads, 0)]
    for op in ops:
        moved = join_channels if op is ops[-2] else move_channels
        assert table.chosen(op, CFG) is moved and table.cycles(op, CFG) > op.output.nbytes / 16
        assert table.refusal(op, LAST_EXTENSION)


def test_refusals_have_reasons():
    constant = Tensor("k", (1, 64, 1, 7), data=np.zeros((1, 64, 1, 7), np.int8))
    order = tuple(range(80))[::-1]
    refused = [
        (part((0, 0, 79, 0), (1, 64, 40, 7), (1, 1, -2, 1)), "steps of (1, 1, -2, 1)"),
        (Concat("op", (X, constant), Tensor("y", (1, 64, 81, 7)), 2), "a constant part"),
        (
            Take("op", (X,), X, ((), (), order, ())),
            "it moves elements, other than by whole factors of an image that fits",
        ),
    ]
    for op, why in refused:
        assert Accelerator(CFG).refusal(op) == why
    op = part((0, 8, 0, 0), (1, 16, 80, 7))
    assert table.refusal(op, LAST_EXTENSION) == "channels from 8 on: blocks have 16"
    op = Concat("op", (Tensor("a", (1, 3, 80, 7)), X), Tensor("y", (1, 67, 80, 7)), 1)
    assert table.refusal(op, LAST_EXTENSION) == "3 channels are not whole blocks"


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_images_and_rows_are_cut(exact, name):
    images, rows = Tensor("x", (3, 20, 4, 5)), Tensor("x", (6, 40))
    exact(part((1, 16, 1, 0), (2, 4, 2, 5), x=images), cfg=PRESETS[name])
    exact(part((2, 0), (3, 40), (1, 1), rows), cfg=PRESETS[name])
    exact(part((5, 16), (1, 24), (1, 1), rows), cfg=PRESETS[name])
