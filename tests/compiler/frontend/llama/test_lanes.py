"""compiler/frontend/llama/lanes.py: orders of rows, written out."""

from tilewright.compiler.frontend.llama.checkpoint import Sizes
from tilewright.compiler.frontend.llama.step import Lanes, padded


def test_lanes_are_two_halves_of_heads():
    """Three query heads for each of two heads of keys, of four elements; blocks of 16."""
    lanes = Lanes(Sizes(24, 24, 1, 6, 2, 40, 12))
    rest = [-1] * 12
    assert lanes.keys.tolist() == [0, 2, 4, 6, *rest, 1, 3, 5, 7, *rest]
    assert lanes.values.tolist() == [*range(8), *[-1] * 8]
    assert lanes.half == (0, 0, 1, 1, *rest) and lanes.value_groups == (*[0] * 4, *[1] * 4, *[-1] * 8)
    assert lanes.pairs.tolist() == [0, 1, 0, 1, *rest]
    second = lanes.queries[32:64].tolist()  # of query heads 1 and 4
    assert second == [4, 6, 16, 18, *rest, 5, 7, 17, 19, *rest]
    assert lanes.outputs[16:24].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]


def test_padding_is_to_blocks_of_16():
    assert [padded(k) for k in (1, 16, 17)] == [16, 16, 32]
