"""Sums of many entries by halves, against those of numpy."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler.accelerator.lanewise.folding import folded, instructions
from tilewright.hw.isa import AluOp, Mem


@pytest.mark.parametrize(("count", "width"), [(1, 1), (2, 1), (3, 2), (7, 1), (8, 3)])
def test_every_row_is_combined(count, width):
    cfg = tw.load_config("tiny")
    rows, step = 2, count * width + 1
    program = tw.Program(cfg)
    program.load(Mem.ACC, 0, program.buffer("x", (rows * step, 1, cfg.block_out), bits=32), 0, x_size=rows * step)
    folded(program, AluOp.ADD, 0, rows, step, count, width)
    program.store(0, program.buffer("y", (rows * step, 1, cfg.block_out), kind="output"), 0, x_size=rows * step)
    x = np.random.default_rng(3).integers(-8, 8, (rows, step, 1, cfg.block_out))
    y = tw.run(program, {"x": x.reshape(rows * step, 1, -1)})[0]["y"].reshape(x.shape)
    expected = x[:, :-1].reshape(rows, count, width, 1, -1).sum(1)
    np.testing.assert_array_equal(y[:, :width], expected)


def test_instructions():
    assert [instructions(n) for n in (1, 2, 3, 17)] == [0, 1, 2, 5]
