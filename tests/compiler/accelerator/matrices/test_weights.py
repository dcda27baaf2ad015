"""The second operand of a product as entries of weights: its copies are buffers."""

from dataclasses import replace

import pytest

from tilewright.compiler.graph import Concat, Tensor


@pytest.mark.parametrize(
    "shape, transposed, passes",
    [((2, 64, 64, 32), True, 0), ((2, 64, 64, 32), False, 1), ((2, 64, 60, 32), True, 1), ((2, 64, 64, 30), False, 2)],
)
def test_it_is_copied_and_transposed_only_where_it_must_be(exact, matmul, shape, transposed, passes):
    buffers = exact(matmul(shape, transposed)).buffers
    assert len([b for b in buffers if b.kind == "temp"]) == passes


def test_images_that_begin_between_entries_of_weights_are_copied(exact, matmul):
    op = matmul((1, 24, 24, 16), True)
    first, second = (Tensor(name, (1, 16, 1, 24), scale=0.1) for name in "ab")
    joined = Tensor("y", (1, 32, 1, 24), scale=0.1)
    wide = replace(op, inputs=(replace(op.x, shape=(1, 32, 1, 24)), joined))
    exact(Concat("concat", (first, second), joined, 1), wide)
