"""Products of two computed matrices, as one launch against the reference."""

from dataclasses import replace

import pytest

from tilewright.compiler.graph import Tensor
from tilewright.compiler.kernels import table
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]

SYMMETRIC, SKEWED, LARGEST = (0, 0), (-128, 3), (5, -128)


@pytest.mark.parametrize("zero_points", [SYMMETRIC, SKEWED, LARGEST])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 16, 16, 16), (2, 17, 16, 8), (3, 5, 7, 19), (2, 64, 48, 32), (16, 1, 33, 4)])
def test_products(exact, matmul, shape, transposed, zero_points):
    exact(matmul(shape, transposed, zero_points))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 600, 40, 24), (1, 30, 40, 3000), (1, 20, 3000, 24)])
def test_operands_larger_than_a_scratchpad(exact, matmul, shape, transposed):
    exact(matmul(shape, transposed, SKEWED))


@pytest.mark.parametrize("same", [(0,), (1,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_one_operand_for_all_matrices(exact, matmul, transposed, same):
    exact(matmul((3, 20, 30, 20), transposed, LARGEST, same))


def test_a_constant_operand(exact, matmul):
    exact(matmul((2, 10, 20, 30), True, SKEWED, constant=True))


def test_blocks_of_another_size(exact, matmul):
    exact(matmul((2, 9, 13, 6), False, SKEWED), cfg=PRESETS["tiny"])


@pytest.mark.parametrize("shape", [(4, 128, 128, 32), (1, 384, 384, 64), (1, 100, 90, 2000)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("zero_points", [SYMMETRIC, SKEWED])
def test_the_cycles_are_those_of_the_launch(exact, matmul, shape, transposed, zero_points):
    op = matmul(shape, transposed, zero_points)
    assert predict(exact(op)).cycles < 1.35 * op.macs / CFG.macs_per_cycle + 24 * sum(t.nbytes for t in op.inputs) / 16


def test_small_matrices_are_multiplied_together(exact, matmul):
    together = predict(exact(matmul((8, 16, 16, 16), True, (3, 4)))).cycles
    assert together < 4 * predict(exact(matmul((1, 16, 16, 16), True, (3, 4)))).cycles


def test_what_is_refused(matmul):
    op = matmul((1, 16, 16, 16), True)
    assert not table.refusal(op, CFG)
    plain = [Tensor(t.name, (1, 16, 16), scale=t.scale) for t in (*op.inputs, op.output)]
    assert "no images" in table.refusal(replace(op, images=False, inputs=tuple(plain[:2]), output=plain[2]), CFG)
    assert table.refusal(op, PRESETS["vta"]) == "it needs the extension overwrite"
