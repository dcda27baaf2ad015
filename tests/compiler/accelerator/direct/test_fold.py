"""How the host lays out images of few channels: what is chosen for known layers, and that no tap is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.first_images import cheapest_layout, seconds
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import QConv2d, Tensor
from tilewright.compiler.kernels import language
from tilewright.compiler.kernels.conv import folded_conv, host_step
from tilewright.compiler.kernels.fold import (
    FoldTiles,
    fold_in_place,
    fold_weights,
    folds,
    taps_of,
)
from tilewright.hw.config import PRESETS

PYNQ = PRESETS["pynq_z1"]


def convolution(c, size, o, kernel, strides, pads, dilations=(1, 1)):
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    x, y = Tensor("x", (1, c, *size)), Tensor("y", (1, o, *output_size(size, spans, strides, pads)))
    weight = np.random.default_rng(o).integers(1, 128, (o, c, *kernel)).astype(np.int8)
    facts = {"strides": strides, "pads": pads, "dilations": dilations}
    return QConv2d("conv", (x,), y, weight, np.ones(o, np.float32), np.zeros(o, np.int32), **facts)


@pytest.mark.parametrize(
    ("c", "size", "o", "kernel", "stride", "steps", "growth"),
    [
        (3, (32, 32), 16, (3, 3), 1, 3, 6),  # 9 with blocks of channels
        (3, (96, 96), 8, (3, 3), 2, 3, 2),
        (1, (49, 10), 64, (10, 4), 2, 3, 5),  # 40
        (3, (224, 224), 64, (7, 7), 2, 10, 4),  # 49; 147 products do not fit 9 entries
    ],
)
def test_folds_of_known_networks(c, size, o, kernel, stride, steps, growth):
    pads = (kernel[0] // 2, (kernel[1] - 1) // 2) * 2
    op = convolution(c, size, o, kernel, (stride, stride), pads)
    fold = cheapest_layout(op, PYNQ, nhwc=False)
    assert fold is not None
    assert len(fold.terms) / fold.phases == steps
    assert np.prod(host_step(op, fold, PYNQ)[1]) <= growth * op.x.nbytes


@pytest.mark.parametrize("cfg", [PYNQ, PYNQ.replace(extensions=PYNQ.extensions - {"pad_value"})], ids=["", "no pads"])
@pytest.mark.parametrize("kernel", [(10, 4), (5, 3), (3, 3)])
@pytest.mark.parametrize(
    ("stride", "pads", "dilation"),
    [(2, (4, 1, 5, 1), 1), (1, (2, 0, 1, 0), 1), (3, (6, 1, 7, 1), 2), (2, (1, 0, 0, 0), 2), (3, (4, 0, 3, 0), 3)],
)
def test_loads_make_the_strips_that_are_padding_alone(cfg, kernel, stride, pads, dilation):
    """The host lays out those with a row of the image, and the last one that begins at or above its first row."""
    op = convolution(1, (49, 10), 64, kernel, (stride, stride), pads, (dilation, 1))
    inside = max(pads[0], pads[2]) <= (kernel[0] - 1) * dilation
    for fold in folds(op.shape, cfg):
        rows = [[s * fold.step + k * dilation - pads[0] for k in range(fold.rows)] for s in range(fold.strips)]
        within = [range(max(mine[0], 0), min(mine[-1] + 1, 49)) for mine in rows]
        empty = [not some and not -fold.step < mine[0] <= 0 for some, mine in zip(within, rows)]
        wanted = empty.count(True) if inside and cfg is PYNQ else 0
        assert fold.strips - fold.laid_out == wanted == fold.above + fold.below
        assert all(empty[: fold.above]) and all(empty[fold.strips - fold.below :])
        attrs, shape = host_step(op, fold, cfg)
        assert attrs["strips"] == shape[1] == fold.laid_out and attrs["top"] == -rows[fold.above][0]


def test_nothing_is_folded_where_it_does_not_pay():
    pointwise = convolution(12, (8, 8), 8, (1, 1), (1, 1), (0, 0, 0, 0))
    narrow = convolution(3, (8, 8), 8, (3, 3), (1, 1), (1, 1, 1, 1))
    full = convolution(16, (8, 8), 8, (3, 3), (1, 1), (1, 1, 1, 1))
    assert (
        cheapest_layout(pointwise, PYNQ, nhwc=False) is None
        and cheapest_layout(full, PYNQ, nhwc=False) is None
        and cheapest_layout(narrow, PYNQ, nhwc=False) is not None
    )
    assert cheapest_layout(narrow, PRESETS["vta"], nhwc=False) is None  # it has no requantising store


def test_the_cost_weighs_products_against_loads():
    few = cheapest_layout(convolution(3, (64, 64), 16, (3, 3), (1, 1), (1, 1, 1, 1)), PYNQ, nhwc=False)
    many = cheapest_layout(convolution(3, (64, 64), 128, (3, 3), (1, 1), (1, 1, 1, 1)), PYNQ, nhwc=False)
    assert few is not None and many is not None
    assert len(many.terms) / many.phases < len(few.terms) / few.phases  # eight blocks of outputs read each entry
    assert many.entries > few.entries


@pytest.mark.parametrize(
    ("c", "size", "o", "kernel", "stride", "most"),
    [
        (3, (224, 224), 192, (16, 16), 16, 0),  # 768 products of 12 blocks: 576 tiles of weights at the least
        (8, (224, 224), 40, (11, 11), 5, 400),
        (3, (224, 224), 64, (11, 11), 4, 800),
    ],
)
def test_the_search_is_small(c, size, o, kernel, stride, most):
    op = convolution(c, size, o, kernel, (stride, stride), (0, 0, 0, 0))
    assert sum(1 for _ in folds(op.shape, PYNQ)) <= most


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_tap_has_its_weight_once(data):
    c = data.draw(st.integers(1, 9), "channels")
    kernel = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 7)), "kernel")
    dilations = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 3)), "dilations")
    strides = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)), "strides")
    size = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 20)) for k, d in zip(kernel, dilations))
    op = convolution(c, size, data.draw(st.integers(1, 40)), kernel, strides, (0, 0, 0, 0), dilations)
    fitting = [fold for fold in folds(op.shape, PYNQ) if FoldTiles(op.shape, fold, PYNQ).fit]
    if fitting:
        check_weights(op, data.draw(st.sampled_from(fitting)))


@pytest.mark.parametrize(
    ("c", "wide", "kernel", "stride"), [(3, 32, 3, 1), (3, 96, 3, 2), (1, 48, 4, 3), (5, 16, 2, 1)]
)
@pytest.mark.parametrize("left", [0, 1])
def test_images_in_place_have_every_tap_once(c, wide, kernel, stride, left):
    op = convolution(c, (12, wide), 20, (3, kernel), (1, stride), (1, left, 2, 1))
    fold = fold_in_place(op, PYNQ)
    assert fold is not None and fold.margin == left and fold.shift == (16 - c if left else 0)
    check_weights(op, fold)


@pytest.mark.parametrize(
    ("c", "size", "kernel", "strides", "pads", "dilations"),
    [
        (3, (8, 30), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),  # rows of 90 bytes
        (3, (8, 32), (3, 3), (2, 1), (1, 1, 1, 1), (2, 1)),  # every other row
        (3, (8, 32), (3, 3), (1, 1), (3, 1, 1, 1), (1, 1)),  # a window of padding alone
        (3, (8, 32), (1, 16), (1, 1), (0, 0, 0, 15), (1, 1)),  # 45 bytes, three entries: fits
        (16, (8, 32), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),  # whole blocks of channels
        (1, (8, 512), (1, 511), (1, 1), (0, 300, 0, 0), (1, 1)),  # 19 entries of padding
    ],
)
def test_images_that_are_not_read_in_place(c, size, kernel, strides, pads, dilations):
    op = convolution(c, size, 8, kernel, strides, pads, dilations)
    assert (fold_in_place(op, PYNQ) is None) == (kernel != (1, 16))
    assert fold_in_place(op, PRESETS["vta"]) is None


def test_the_host_counts_half():
    """vww reads its image in place; resnet8 has one of fewer bytes laid out than the accelerator alone would like."""
    vww = convolution(3, (96, 96), 8, (3, 3), (2, 2), (0, 0, 1, 1))
    resnet8 = convolution(3, (32, 32), 16, (3, 3), (1, 1), (1, 1, 1, 1))
    assert cheapest_layout(vww, PYNQ, nhwc=True) == fold_in_place(vww, PYNQ)
    for nhwc, op in ((False, vww), (True, resnet8)):
        made = cheapest_layout(op, PYNQ, nhwc=nhwc)
        fitting = [fold for fold in folds(op.shape, PYNQ) if FoldTiles(op.shape, fold, PYNQ).fit]
        alone = min(fitting, key=lambda fold: (len(fold.terms) / fold.phases, fold.strips * fold.entries))
        assert made is not None and not made.in_place
        assert made.strips * made.entries < alone.strips * alone.entries
    full = convolution(16, (8, 8), 8, (3, 3), (1, 1), (1, 1, 1, 1))
    assert cheapest_layout(full, PYNQ, nhwc=True) is None


def check_weights(op, fold):
    tiles = fold_weights(op, fold, PYNQ)
    assert tiles.shape[:2] == (-(-len(op.weight) // 16), len(fold.terms))
    assert FoldTiles(op.shape, fold, PYNQ).fit
    for phase in range(fold.phases):
        mine = tiles[:, [k for k, term in enumerate(fold.terms) if term[0] == phase]]
        assert np.count_nonzero(mine) == op.weight.size  # none is zero
        total = mine.sum((1, 3), dtype=np.int64).reshape(-1)[: len(op.weight)]
        assert np.array_equal(total, op.weight.sum((1, 2, 3), dtype=np.int64))


def test_taps_of_a_strip():
    shape = convolution(2, (9, 9), 4, (3, 2), (1, 1), (0, 0, 0, 0), (2, 3)).shape
    byte, c, y, x = taps_of(shape, 2, 1)  # the window's last row: strips have two
    assert byte.tolist() == [0, 1, 12, 13]  # columns lie 3 apart, of 2 rows with 2 channels
    assert c.tolist() == [0, 1, 0, 1] and y.tolist() == [2] * 4 and x.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("c", "size", "o", "kernel", "stride"), [(3, (32, 32), 16, 3, 1), (3, (96, 96), 8, 3, 2)])
def test_the_timing_model_agrees_with_the_choice(c, size, o, kernel, stride):
    op = convolution(c, size, o, (kernel, kernel), (stride, stride), (1, 1, 1, 1))

    def needed(fold):
        return seconds(op.shape, PYNQ, fold, language.cycles(folded_conv, op, PYNQ, fold))

    chosen = cheapest_layout(op, PYNQ, nhwc=False)
    fitting = [fold for fold in folds(op.shape, PYNQ) if FoldTiles(op.shape, fold, PYNQ).fit]
    others = [needed(fold) for fold in fitting[:: len(fitting) // 12]]
    assert needed(chosen) <= min(others) < 0.92 * max(others)
