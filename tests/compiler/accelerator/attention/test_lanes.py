"""The lanes of groups in blocks."""

from tilewright.compiler.graph import Attention, Tensor
from tilewright.compiler.kernels.attention import parts, parts_of


def found(made):
    return [(part.group, part.block, part.mask.tolist()) for part in made]


def test_groups_that_share_blocks_and_blocks_that_share_groups():
    lanes = [0, 0, 1, 1, 1, 1, 1, -1, 3]
    assert found(parts(lanes, [0, 1, 3], 4)) == [
        (0, 0, [1, 1, 0, 0]),
        (1, 0, [0, 0, 1, 1]),
        (1, 1, [1, 1, 1, 0]),
        (2, 2, [1, 0, 0, 0]),
    ]


def test_of_attention():
    """Groups without values have no part in it."""
    position, (q, k) = (
        Tensor("position", (1,), "int32"),
        (Tensor(n, (1, 8, *s), scale=0.1) for n, s in (("q", ()), ("k", (4, 1)))),
    )
    v, y = Tensor("v", (1, 4, 4, 1), scale=0.1), Tensor("y", (1, 4), scale=0.1)
    op = Attention("op", (q, k, v, position), y, (5, 5, 7, 2), (7, 7, 5, -1), 4, 4)
    keys, values = parts_of(op, 4)
    assert found(keys) == [
        (0, 0, [1, 1, 0, 0]),
        (0, 1, [1, 1, 0, 0]),
        (1, 0, [0, 0, 1, 0]),
        (1, 1, [0, 0, 1, 0]),
    ]
    assert found(values) == [(0, 0, [0, 0, 1, 0]), (1, 0, [1, 1, 0, 0])]
