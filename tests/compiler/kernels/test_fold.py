"""Images of few channels: how the host lays them out, that no tap is lost, and convolutions of them on both units."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.kernels.operators import NONE, SAME, conv, tensor
from tilewright.compiler import graph as g
from tilewright.compiler.accelerator import first_images
from tilewright.compiler.accelerator import launch as launches
from tilewright.compiler.accelerator.first_images import brought, cheapest_layout, folds_of
from tilewright.compiler.kernels.conv import host_step
from tilewright.compiler.kernels.fold import FoldTiles, fold_in_place, fold_weights, folds
from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import HostStep
from tilewright.sim.timing import predict

CFG, VTA, TWO, TINY_TWO = (PRESETS[name] for name in ("pynq_z1", "vta", "pynq_z1_two", "tiny_two"))
NARROW = CFG.replace(name="narrow", inp_bytes=1 << 11, acc_bytes=1 << 12)
NARROW_CONV = conv(3, (8, 8), 8, pads=SAME)
FULL = conv(16, (8, 8), 8, pads=SAME)
POINTWISE = conv(12, (8, 8), 8, (1, 1))
VWW, RESNET8 = conv(3, (96, 96), 8, strides=(2, 2), pads=(0, 0, 1, 1)), conv(3, (32, 32), 16, pads=SAME)


def chosen(op, cfg=CFG, nhwc=False):
    fold = cheapest_layout(op, cfg, nhwc=nhwc)
    assert fold is not None
    return fold


def fitting(op):
    return [fold for fold in folds(op.shape, CFG) if FoldTiles(op.shape, fold, CFG).fit]


# what is chosen


@pytest.mark.parametrize("c, size, o, kernel, stride, steps, growth", [
    (3, (32, 32), 16, (3, 3), 1, 3, 6),  # 9 with blocks of channels
    (3, (96, 96), 8, (3, 3), 2, 3, 2),
    (1, (49, 10), 64, (10, 4), 2, 3, 5),  # 40
    (3, (224, 224), 64, (7, 7), 2, 10, 4),  # 49; 147 products do not fit 9 entries
])  # fmt: skip
def test_folds_of_known_networks(c, size, o, kernel, stride, steps, growth):
    op = conv(c, size, o, kernel, (stride, stride), (kernel[0] // 2, (kernel[1] - 1) // 2) * 2)
    fold = chosen(op)
    assert len(fold.terms) / fold.phases == steps
    assert np.prod(host_step(op, fold, CFG)[1]) <= growth * op.x.nbytes


def test_nothing_is_folded_where_it_does_not_pay():
    for op, nhwc in ((POINTWISE, False), (FULL, False), (FULL, True)):
        assert cheapest_layout(op, CFG, nhwc=nhwc) is None
    assert chosen(NARROW_CONV) and cheapest_layout(NARROW_CONV, VTA, nhwc=False) is None  # no requantising store


@pytest.mark.parametrize("c, o, kernel, stride, most", [
    (3, 192, 16, 16, 0),  # 768 products of 12 blocks: 576 tiles of weights at the least
    (8, 40, 11, 5, 400),
    (3, 64, 11, 4, 800),
])  # fmt: skip
def test_the_search_is_small(c, o, kernel, stride, most):
    op = conv(c, (224, 224), o, (kernel, kernel), (stride, stride))
    assert sum(1 for _ in folds(op.shape, CFG)) <= most


def image_network(*ops):
    return g.Graph("g", (ops[0].inputs[-1],), (ops[-1].output,), ops)


def test_images_that_the_host_brings():
    def layer(name, x, y):
        return replace(conv(x.shape[1], (16, 16), y.shape[1], pads=SAME), name=name, inputs=(x,), output=y)

    x, a, y, z = (tensor(name, (1, c, 16, 16)) for name, c in zip("xayz", (3, 3, 4, 16)))
    one = tensor("one", (1, 1, 16, 16), data=np.ones((1, 1, 16, 16), np.int8))
    graph = image_network(g.Concat("join", (one, x), y, 1), layer("conv", y, z))
    assert brought(graph) == {"x", "y"} and [*folds_of(graph, CFG)] == ["conv"]
    wide = tensor("wide", (1, 6, 16, 16))
    graph = image_network(layer("first", x, a), g.Concat("join", (x, a), wide, 1), layer("second", wide, z))
    assert brought(graph) == {"x"} and [*folds_of(graph, CFG)] == ["first"]


# no tap is lost


def check_weights(op, fold):
    found = fold_weights(op, fold, CFG)
    assert found.shape[:2] == (-(-len(op.weight) // 16), len(fold.terms)) and FoldTiles(op.shape, fold, CFG).fit
    for phase in range(fold.phases):
        mine = found[:, [k for k, term in enumerate(fold.terms) if term[0] == phase]]
        assert np.count_nonzero(mine) == op.weight.size  # none is zero
        total = mine.sum((1, 3), dtype=np.int64).reshape(-1)[: len(op.weight)]
        assert np.array_equal(total, op.weight.sum((1, 2, 3), dtype=np.int64))


def positive(*facts):
    """A convolution none of whose weights is 0."""
    op = conv(*facts)
    return replace(op, weight=abs(op.weight.astype(int)).clip(1, 127).astype(np.int8))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_tap_has_its_weight_once(data):
    draw = data.draw
    c, kernel = draw(st.integers(1, 9)), draw(st.tuples(st.integers(1, 6), st.integers(1, 7)))
    dilations, strides = (
        draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
        draw(st.tuples(*[st.integers(1, 4)] * 2)),
    )
    size = tuple((k - 1) * d + 1 + draw(st.integers(0, 20)) for k, d in zip(kernel, dilations))
    op = positive(c, size, draw(st.integers(1, 40)), kernel, strides, NONE, dilations)
    if found := fitting(op):
        check_weights(op, draw(st.sampled_from(found)))


@pytest.mark.parametrize("op, fits", [
    (conv(3, (8, 30), 8, pads=SAME), False),  # rows of 90 bytes
    (conv(3, (8, 32), 8, (3, 3), (2, 1), SAME, (2, 1)), False),  # every other row
    (conv(3, (8, 32), 8, pads=(3, 1, 1, 1)), False),  # a window of padding alone
    (conv(3, (8, 32), 8, (1, 16), pads=(0, 0, 0, 15)), True),  # 45 bytes, three entries
    (FULL, False),  # whole blocks of channels
    (conv(1, (8, 512), 8, (1, 511), pads=(0, 300, 0, 0)), False),  # 19 entries of padding
])  # fmt: skip
def test_images_that_are_read_in_place(op, fits):
    assert (fold_in_place(op, CFG) is not None) == fits and fold_in_place(op, VTA) is None


@pytest.mark.parametrize("cfg", [CFG, CFG.replace(extensions=CFG.extensions - {"pad_value"})], ids=["", "no pads"])
@pytest.mark.parametrize("stride, pads, dilation", [
    (2, (4, 1, 5, 1), 1), (1, (2, 0, 1, 0), 1), (3, (6, 1, 7, 1), 2), (2, (1, 0, 0, 0), 2), (3, (4, 0, 3, 0), 3),
])  # fmt: skip
def test_loads_make_the_strips_that_are_padding_alone(cfg, stride, pads, dilation):
    """The host lays out those with a row of the image, and the last one that begins at or above its first row."""
    for kernel in ((10, 4), (3, 3)):
        op = conv(1, (49, 10), 64, kernel, (stride, stride), pads, (dilation, 1))
        inside = max(pads[0], pads[2]) <= (kernel[0] - 1) * dilation
        for fold in folds(op.shape, cfg):
            rows = [[s * fold.step + k * dilation - pads[0] for k in range(fold.rows)] for s in range(fold.strips)]
            within = [range(max(mine[0], 0), min(mine[-1] + 1, 49)) for mine in rows]
            empty = [not some and not -fold.step < mine[0] <= 0 for some, mine in zip(within, rows)]
            wanted = empty.count(True) if inside and cfg is CFG else 0
            assert fold.strips - fold.laid_out == wanted == fold.above + fold.below
            assert all(empty[: fold.above]) and all(empty[fold.strips - fold.below :])
            attrs, shape = host_step(op, fold, cfg)
            assert attrs["strips"] == shape[1] == fold.laid_out and attrs["top"] == -rows[fold.above][0]


# convolutions


@pytest.fixture(scope="session")
def run(exact_graph):
    """Compiles a convolution, whose result is checked; the executable. Operators `before` make the image."""

    def checked(op, cfg=CFG, *before):
        (t,) = (*before, op)[0].inputs
        return exact_graph(g.Graph("g", (t,), (op.output,), (*before, op)), cfg, refused={}).executable

    return checked


def test_micro_ops_and_host_steps(run):
    executable = run(conv(3, (16, 16), 20, pads=SAME, n=2))
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_windows", "unpack"]
    (step,) = executable.launches
    assert len(step.launch.uops) <= 2 * 2 * 3 * 3  # slots, blocks, phases, entries of a window


@pytest.mark.circuit
def test_images_larger_than_the_scratchpads(run):
    few = {"wgt_bytes": 1 << 14, "inp_bytes": 1 << 12, "acc_bytes": 1 << 14, "uop_bytes": 1 << 12}
    run(conv(3, (40, 40), 40, (5, 5), (2, 2), (2, 2, 2, 2)), CFG.replace(name="small", **few))
    assert run(conv(3, (520, 520), 20, (2, 2), (2, 2))).launches  # 67,600 entries to a block
    op = conv(3, (9, 151), 40, (3, 3), (2, 1), SAME, n=2)
    cut = FoldTiles(op.shape, chosen(op, NARROW), NARROW)
    assert 0 < 151 % cut.columns < cut.columns < 151  # the last part is narrower
    run(op, NARROW)


@pytest.mark.parametrize("pads", [(4, 1, 5, 1), (9, 0, 9, 3), (8, 1, 0, 0)])
def test_strips_of_padding_alone(pads, run):
    op = conv(1, (19, 10), 24, (10, 4), (2, 2), pads, n=2)
    fold = chosen(op)
    assert fold.above + fold.below > 0
    run(op)


def test_a_long_signal_takes_few_products(run):
    (step,) = run(conv(1, (1, 8000), 64, (1, 80), (1, 4))).launches
    issues = 5 * 4 * 1981  # 80 taps are five entries; four blocks of outputs
    assert issues < predict(step.launch).cycles < 1.15 * issues


@pytest.mark.parametrize(
    "seeds", [range(36, 42), pytest.param(range(600), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_convolutions_are_exact(seeds, run):
    """Windows of any kernel, dilations, strides and pads, without groups, in two groups and by channel."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        ends = (6, 8), (5, 5), (4, 4)
        kernel, dilations, strides = ((int(rng.integers(1, k)), int(rng.integers(1, w))) for k, w in ends)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        pads = tuple(int(rng.integers(0, reach[k % 2] + 1)) for k in range(4))
        size = tuple(int(rng.integers(max(1, r - a - b), r + 16)) for r, a, b in zip(reach, pads, pads[2:]))
        c = int(rng.integers(1, 9))
        groups = int(rng.choice([1, 1, c, 2 - c % 2]))
        o = groups * int(rng.integers(1, 34 // groups))
        op = conv(c, size, o, kernel, strides, pads, dilations, groups=groups, seed=seed)
        run(op, CFG if seed % 2 else NARROW)


@pytest.mark.parametrize("op, cfg", [
    (RESNET8, CFG),
    (conv(3, (9, 32), 8, (3, 3), (2, 2), (0, 0, 1, 1), n=2), CFG),
    (conv(1, (7, 48), 33, (3, 5), (1, 3), (2, 4, 1, 3)), CFG),  # three blocks of outputs
    (conv(5, (9, 16), 20, (2, 2), (3, 1), (1, 1, 1, 0), (2, 2)), CFG),
    (conv(2, (16, 40), 24, (3, 2), (1, 2), (0, 1, 0, 0), (1, 3)), CFG),
    (conv(3, (9, 160), 20, pads=SAME, n=2), NARROW),  # parts of rows
])  # fmt: skip
def test_images_in_place_are_exact(monkeypatch, run, op, cfg):
    """An NHWC image is read as it lies; the host only unpacks."""
    fold = fold_in_place(op, cfg)
    assert fold is not None and FoldTiles(op.shape, fold, cfg).columns < (160 if cfg is NARROW else 1 << 20)
    monkeypatch.setattr(launches, "cheapest_layout", lambda *_, **__: fold)
    n, c, h, w = op.x.shape
    nhwc = tensor("nhwc", (n, h, w, c), op.x.scale, op.x.zero_point)
    executable = run(op, cfg, g.Transpose("relayout", (nhwc,), op.x, (0, 3, 1, 2), True))
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["unpack"]


@pytest.mark.parametrize("op, cfg", [
    (conv(3, (9, 32), 8, (3, 3), (2, 2), (1, 1, 1, 1), n=2), CFG),
    (conv(2, (7, 48), 20, (3, 5), (1, 3), (2, 4, 1, 3)), CFG),
    (conv(2, (9, 160), 20, pads=SAME, n=2), NARROW),  # parts of rows
])  # fmt: skip
def test_planes_in_place_are_exact(monkeypatch, run, op, cfg):
    """An NCHW image is read as it lies; the host only unpacks."""
    fold = fold_in_place(op, cfg, planes=True)
    assert fold is not None and fold.planes == op.x.shape[1]
    for module in launches, first_images:
        monkeypatch.setattr(module, "cheapest_layout", lambda *_, **__: fold)
    executable = run(op, cfg)
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["unpack"]


def test_planes_whose_rows_are_no_whole_entries():
    assert fold_in_place(conv(8, (8, 30), 8, pads=SAME), CFG) is not None
    assert fold_in_place(conv(8, (8, 30), 8, pads=SAME), CFG, planes=True) is None


# two units


def two(o, ternary, c=3, size=(32, 32), kernel=(3, 3), strides=(1, 1), pads=SAME, dilations=(1, 1), n=1):
    return conv(c, size, o, kernel, strides, pads, dilations, n, ternary=ternary)


DILATED = {"c": 1, "size": (17, 13), "kernel": (4, 5), "strides": (1, 2), "pads": (0, 2, 0, 2), "dilations": (2, 1)}


@pytest.mark.parametrize("op", [
    two(21, 5), two(53, 37, **DILATED, n=2), two(21, 5, 5, (9, 70), (3, 1), pads=NONE),
])  # fmt: skip
def test_layers_of_two_units(exact, op):
    assert chosen(op, TWO)
    exact(op, cfg=TWO)
