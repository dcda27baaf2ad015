"""Tiles of products of matrices, and their estimates."""

import math
from dataclasses import replace

import pytest

from tilewright.compiler.accelerator.matrices.plan import digits, plan_of, refusal
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import Tensor
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


@pytest.mark.parametrize("zero_point", [-128, -127, -1, 0, 5, 127])
def test_digits_are_int8(zero_point):
    found = digits(zero_point)
    assert sum(found) == -zero_point and all(-128 <= d <= 127 for d in found)


@pytest.mark.parametrize("shape", [(4, 128, 128, 32), (1, 384, 384, 64), (1, 100, 90, 2000)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("zero_points", [(0, 0), (-128, 3)])
def test_the_estimate(exact, matmul, shape, transposed, zero_points):
    op = matmul(shape, transposed, zero_points)
    found = predict(exact(op)).cycles
    assert plan_of(op, CFG).cycles == pytest.approx(found, rel=0.2)
    assert Accelerator(CFG).seconds((op,)) >= plan_of(op, CFG).cycles / 100e6


def test_tiles_cover_the_product_once(matmul):
    plan = plan_of(matmul((3, 50, 70, 90), True), PRESETS["tiny"])
    assert sum(math.prod((t.matrices, t.columns, t.rows)) for *_, t in plan) == 3 * 18 * 50
    assert plan_of(matmul((8, 16, 16, 16), True, (3, 4)), CFG).tile.matrices > 1  # small ones together


def test_sums_for_zero_points_are_apart_where_that_takes_fewer_cycles(matmul):
    plan = plan_of(matmul((1, 128, 128, 64), True, (3, 4)), CFG)
    assert plan.rows_apart and plan.columns_apart
    plan = plan_of(matmul((1, 128, 16, 64), True, (3, 4)), CFG)
    assert not plan.rows_apart and plan.columns_apart
    plan = plan_of(matmul((1, 128, 128, 64), True), CFG)
    assert not plan.rows_apart and not plan.columns_apart


def test_what_is_refused(matmul):
    op = matmul((1, 16, 16, 16), True)
    assert not refusal(op, CFG)
    assert "no images" in refusal(
        replace(op, images=False, inputs=_plain(op.inputs), output=_plain([op.output])[0]), CFG
    )
    assert "batch 1" in refusal(op, PRESETS["vta"])
    assert refusal(matmul((1, 70000, 16, 16), True), CFG) == "70000 rows: at most 65535"


def _plain(tensors):
    return tuple(Tensor(t.name, (1, 16, 16), scale=t.scale) for t in tensors)
