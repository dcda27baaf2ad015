"""Tensors as images of rows."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.sequences import image_shape, to_image


@pytest.mark.parametrize(
    "shape, nchw, image",
    [
        ((5,), False, (1, 5, 1, 1)),
        ((3, 5), False, (1, 5, 1, 3)),
        ((2, 3, 5), False, (2, 5, 1, 3)),
        ((2, 4, 3, 5), False, (8, 5, 1, 3)),
        ((2, 5, 4, 3), True, (8, 5, 1, 3)),
    ],
)
def test_shapes(shape, nchw, image):
    x = np.arange(np.prod(shape)).reshape(shape)
    assert image_shape(shape, nchw) == image == to_image(x, nchw).shape
    rows = np.moveaxis(x, 1, -1) if nchw else x
    assert np.array_equal(np.moveaxis(to_image(x, nchw)[:, :, 0], 1, -1).reshape(-1, 5), rows.reshape(-1, 5))


def test_rows_are_pixels_and_features_channels():
    x = np.arange(24).reshape(2, 3, 4)
    image = to_image(x)
    assert image[1, 2, 0, 0] == x[1, 0, 2] and image[0, 3, 0, 2] == x[0, 2, 3]
    assert np.array_equal(to_image(x[None].transpose(0, 3, 1, 2), True), image)
