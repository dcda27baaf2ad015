"""Convolutions of few channels with parts of the window folded into channels: exact, and with fewer micro-ops."""

import numpy as np
import pytest

from tilewright.compiler.accelerator import launch as network_launch
from tilewright.compiler.accelerator.first_images import cheapest_layout
from tilewright.compiler.conv_shape import output_size
from tilewright.compiler.graph import Graph, QConv2d, Tensor, Transpose
from tilewright.compiler.kernels.fold import FoldTiles, fold_in_place
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime.executable import HostStep
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]


def convolution(n, c, size, o, kernel, strides, pads, dilations, seed, groups=1):
    rng = np.random.default_rng(seed)
    spans = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    x = Tensor("x", (n, c, *size), scale=0.02, zero_point=int(rng.integers(-128, 128)))
    y = Tensor("y", (n, o, *output_size(size, spans, strides, pads)), scale=0.7, zero_point=-3)
    weight = rng.integers(-128, 128, (o, c // groups, *kernel)).astype(np.int8)
    scale, bias = rng.uniform(0.001, 0.01, o).astype(np.float32), rng.integers(-500, 500, o).astype(np.int32)
    moves = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return QConv2d("conv", (x,), y, weight, scale, bias, **moves)


@pytest.fixture(scope="session")
def run(exact_graph):
    """Compiles a convolution, whose result is checked; the executable. Operators `before` make the image."""

    def checked(op, cfg, *before):
        (t,) = (*before, op)[0].inputs
        return exact_graph(Graph("g", (t,), (op.output,), (*before, op)), cfg, refused={}).executable

    return checked


def test_micro_ops_and_host_steps(run):
    executable = run(convolution(2, 3, (16, 16), 20, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 5), PYNQ)
    assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["fold_windows", "unpack"]
    (launch,) = (s.launch for s in executable.launches)
    assert len(launch.uops) <= 2 * 2 * 3 * 3  # slots, blocks, phases, entries of a window


def test_images_larger_than_the_scratchpads(run):
    cfg = Config(
        "small", wgt_bytes=1 << 14, inp_bytes=1 << 12, acc_bytes=1 << 14, extensions=PYNQ.extensions, uop_bytes=1 << 12
    )
    op = convolution(1, 3, (40, 40), 40, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), 3)
    assert cheapest_layout(op, cfg, nhwc=False) is not None
    run(op, cfg)


@pytest.mark.parametrize("pads", [(4, 1, 5, 1), (9, 0, 9, 3), (8, 1, 0, 0)])
def test_strips_of_padding_alone(pads, run):
    op = convolution(2, 1, (19, 10), 24, (10, 4), (2, 2), pads, (1, 1), 6)
    fold = cheapest_layout(op, PYNQ, nhwc=False)
    assert fold is not None and fold.above + fold.below > 0
    run(op, PYNQ)


NARROW = PYNQ.replace(name="narrow", inp_bytes=1 << 11, acc_bytes=1 << 12)


def test_rows_that_fit_no_scratchpad_are_cut(run):
    op = convolution(2, 3, (9, 151), 40, (3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 4)
    fold = cheapest_layout(op, NARROW, nhwc=False)
    assert fold is not None
    tiles = FoldTiles(op.shape, fold, NARROW)
    assert 0 < 151 % tiles.columns < tiles.columns < 151  # the last part is narrower
    run(op, NARROW)


def test_a_long_signal_takes_few_products(run):
    op = convolution(1, 1, (1, 8000), 64, (1, 80), (1, 4), (0, 0, 0, 0), (1, 1), 6)
    (launch,) = (s.launch for s in run(op, PYNQ).launches)
    issues = 5 * 4 * 1981  # 80 taps are five entries; four blocks of outputs
    assert issues < predict(launch).cycles < 1.15 * issues


@pytest.mark.parametrize("outputs", [16, 20])
def test_blocks_further_apart_than_a_stride_can_say(outputs, run):
    executable = run(convolution(1, 3, (520, 520), outputs, (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 7), PYNQ)
    assert executable.launches  # 67,600 entries to a block


@pytest.mark.parametrize(
    "seeds", [range(36, 48), pytest.param(range(600), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_random_convolutions_are_exact(seeds, run):
    """Windows of any kernel, dilations, strides and pads, without groups, in two groups and by channel."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        kernel, dilations, strides = (
            (int(rng.integers(1, k)), int(rng.integers(1, w))) for k, w in ((6, 8), (5, 5), (4, 4))
        )
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        pads = tuple(int(rng.integers(0, reach[k % 2] + 1)) for k in range(4))
        size = tuple(int(rng.integers(max(1, r - a - b), r + 16)) for r, a, b in zip(reach, pads, pads[2:]))
        c = int(rng.integers(1, 9))
        groups = int(rng.choice([1, 1, c, 2 - c % 2]))
        o = groups * int(rng.integers(1, 34 // groups))
        op = convolution(1, c, size, o, kernel, strides, pads, dilations, seed, groups)
        run(op, PYNQ if seed % 2 else NARROW)


def from_nhwc(x):
    """The operator that makes the image `x` of an NHWC one."""
    n, c, h, w = x.shape
    nhwc = Tensor("nhwc", (n, h, w, c), scale=x.scale, zero_point=x.zero_point)
    return Transpose("relayout", (nhwc,), x, (0, 3, 1, 2), True)


@pytest.fixture
def run_in_place(monkeypatch, run):
    """Runs a convolution on an NHWC image that is read as it lies; the host only unpacks."""

    def checked(op, cfg):
        fold = fold_in_place(op, cfg)
        assert fold is not None
        monkeypatch.setattr(network_launch, "fold_of", lambda *_, **__: fold)
        executable = run(op, cfg, from_nhwc(op.x))
        assert [s.op for s in executable.steps if isinstance(s, HostStep)] == ["unpack"]
        return FoldTiles(op.shape, fold, cfg)

    return checked


@pytest.mark.parametrize(
    ("n", "c", "size", "o", "kernel", "strides", "pads", "dilations"),
    [
        (1, 3, (32, 32), 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        (2, 3, (9, 32), 8, (3, 3), (2, 2), (0, 0, 1, 1), (1, 1)),
        (1, 1, (7, 48), 33, (3, 5), (1, 3), (2, 4, 1, 3), (1, 1)),  # three blocks of outputs
        (1, 5, (9, 16), 20, (2, 2), (3, 1), (1, 1, 1, 0), (2, 2)),
        (1, 2, (16, 40), 24, (3, 2), (1, 2), (0, 1, 0, 0), (1, 3)),
    ],
)
def test_images_in_place_are_exact(run_in_place, n, c, size, o, kernel, strides, pads, dilations):
    run_in_place(convolution(n, c, size, o, kernel, strides, pads, dilations, 8), PYNQ)


def test_parts_of_rows_in_place_are_exact(run_in_place):
    op = convolution(2, 3, (9, 160), 20, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 4)
    tiles = run_in_place(op, NARROW)
    assert tiles.columns < 160


def test_a_large_first_tile_hides_its_weights():
    op = convolution(1, 3, (32, 32), 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 8)
    fold = fold_in_place(op, PYNQ)
    assert fold is not None
    tiles = FoldTiles(op.shape, fold, PYNQ)
    assert tiles.late and tiles.rows == 4 and tiles.first == 16  # 72 tiles of weights take 2,304 cycles
    assert [rows for _, _, rows, _ in tiles] == [16, 4, 4, 4, 4]
