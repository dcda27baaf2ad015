"""Images of another size: what must hold of them; LiteRT's bytes are compared elsewhere."""

import numpy as np
import pytest

from tilewright.runtime.hostops.resize import nearest, resize_bilinear

RNG = np.random.default_rng(2)
X = RNG.integers(-128, 128, (2, 3, 5, 4)).astype(np.int8)


def test_nearest_neighbours():
    assert nearest(4, 8, False, False) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest(4, 8, True, False) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert nearest(5, 3, True, False) == [0, 2, 4]
    assert nearest(4, 2, False, True) == [1, 3]
    assert nearest(3, 1, True, True) == [2]


@pytest.mark.parametrize("flags", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
@pytest.mark.parametrize("offset", [None, 128])
def test_the_same_size_and_one_colour_stay(flags, offset):
    assert np.array_equal(resize_bilinear(X, size=[5, 4], offset=offset, **flags), X)
    flat = np.full((1, 1, 3, 3), -77, np.int8)
    assert (resize_bilinear(flat, size=[7, 2], offset=offset, **flags) == -77).all()


def test_ties_go_away_from_zero_or_up():
    x = np.array([[[[-3, 0]]]], np.int8)
    assert resize_bilinear(x, size=[1, 4])[0, 0, 0, 1] == -2
    assert resize_bilinear(x, size=[1, 4], offset=128)[0, 0, 0, 1] == -1
