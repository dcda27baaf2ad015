"""Which operators that move elements are copies, which are products, and which the accelerator refuses."""

import numpy as np

from tilewright.compiler.accelerator.movement import cycles, refusal
from tilewright.compiler.graph import Concat, Pad, StridedSlice, Take, Tensor
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]
X = Tensor("x", (1, 64, 80, 7))
LAST_EXTENSION = CFG.replace(extensions=sorted(CFG.extensions - {"overwrite"}))


def cut(begin, shape, strides=(1,) * 4, x=X):
    return StridedSlice("op", (x,), Tensor("y", shape), begin, strides)


def test_whole_blocks_are_copied():
    for op in (cut((0, 16, 0, 0), (1, 32, 9, 7)), Concat("op", (X, X), Tensor("y", (1, 128, 80, 7)), 1)):
        assert refusal(op, CFG) == "" and cycles(op, CFG) is None


def test_lanes_columns_and_rows_are_products():
    parts = Tensor("a", (1, 3, 80, 7)), X
    pads = ((0, 0), (0, 4), (0, 0), (0, 0))
    ops = [cut((0, 0, 0, 1), (1, 64, 60, 3)), cut((0, 8, 0, 0), (1, 16, 80, 7))]
    ops += [cut((0, 0, 0, 0), (1, 64, 40, 7), (1, 1, 2, 1)), Concat("op", parts, Tensor("y", (1, 67, 80, 7)), 1)]
    ops += [Pad("op", (X,), Tensor("y", (1, 68, 80, 7)), pads, 0)]
    for op in ops:
        taken = cycles(op, CFG)
        assert refusal(op, CFG) == "" and taken is not None and taken > op.output.nbytes / 16
        assert refusal(op, LAST_EXTENSION) != ""


def test_refusals_have_reasons():
    flat = Tensor("x", (2, 64))
    constant = Tensor("k", (1, 64, 1, 7), data=np.zeros((1, 64, 1, 7), np.int8))
    wide = tuple(Tensor(f"x{k}", (1, 16, 80, 7)) for k in range(2))
    order = tuple(range(80))[::-1]
    refused = [
        (cut((0, 0), (1, 16), (1, 1), flat), "int8 (2, 64) to (1, 16)"),
        (cut((0, 0, 79, 0), (1, 64, 40, 7), (1, 1, -2, 1)), "steps of (1, 1, -2, 1)"),
        (Concat("op", (X, constant), Tensor("y", (1, 64, 81, 7)), 2), "a constant part"),
        (Concat("op", wide, Tensor("y", (1, 16, 80, 14)), 3), "160 copies: at most 64"),
        (
            Take("op", (X,), X, ((), (), order, ())),
            "it moves elements, other than by whole factors of an image that fits",
        ),
    ]
    for op, why in refused:
        assert refusal(op, CFG) == why
    op = cut((0, 8, 0, 0), (1, 16, 80, 7))
    assert refusal(op, LAST_EXTENSION) == "channels from 8 on: blocks have 16"
    op = Concat("op", (Tensor("a", (1, 3, 80, 7)), X), Tensor("y", (1, 67, 80, 7)), 1)
    assert refusal(op, LAST_EXTENSION) == "3 channels are not whole blocks"
    op = cut((0, 0, 0, 1), (1, 64, 60, 3))
    assert refusal(op, LAST_EXTENSION) == "240 copies: at most 64"
