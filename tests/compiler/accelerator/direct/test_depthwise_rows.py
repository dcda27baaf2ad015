"""Depthwise convolutions whose rows stay on chip equal an independent int64 computation."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tilewright.compiler import graph as g
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.kernels.depthwise import cuts, rows_on_chip
from tilewright.compiler.kernels.language import Unfit, lower
from tilewright.compiler.kernels.recording import Recording
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify
from tilewright.sim.random_programs import ROWS

PLUS = PRESETS["pynq_z1_plus"]
CONFIGS = (PLUS, PRESETS["pynq_z1"], PRESETS["tiny"], PLUS.replace(load_ports=2))


def products(x, w, of, fill):
    """Accumulators, int64 (n, c, oy, ox), of x (n, c, h, w) and w (c, kh, kw)."""
    (top, left, bottom, right), (sy, sx), (dy, dx), (oy, ox) = of.pads, of.strides, of.dilations, of.output
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    found = np.zeros((*x.shape[:2], oy, ox), np.int64)
    for ky, kx in np.ndindex(*of.kernel):
        seen = x[:, :, ky * dy :: sy, kx * dx :: sx][:, :, :oy, :ox]
        found += seen * w[None, :, ky, kx, None, None].astype(np.int64)
    return found


def layer(of, fill):
    """The operator; its weights are those of the buffers."""
    x = g.Tensor("x", (of.n, of.c, *of.size), zero_point=fill)
    y, weight = g.Tensor("y", (of.n, of.c, *of.output)), np.zeros((of.c, 1, *of.kernel), np.int8)
    moves = {"strides": of.strides, "pads": of.pads, "dilations": of.dilations, "groups": of.c}
    return g.QConv2d("op", (x,), y, weight, np.ones(of.c, np.float32), np.zeros(of.c, np.int32), **moves)


def check(cfg, of, fill=0, seed=0, layers=1):
    """Record `layers` equal layers, verify, run, compare; (how the largest one is cut, the statistics of the run)."""
    cut = cuts(cfg, of, fill)[0]
    rng, rec = np.random.default_rng(seed), Recording(cfg, "single", "layer")
    images, blocks = -(-of.n // cfg.batch), -(-of.c // cfg.block_in)
    lanes = (cfg.batch, cfg.block_in)
    inputs, expected = {}, {}
    for k in range(layers):
        x = rng.integers(-128, 128, (of.n, of.c, *of.size)).astype(np.int8)
        w = rng.integers(-128, 128, (of.c, *of.kernel)).astype(np.int8)
        bias, multiplier = rng.integers(-99, 99, of.c), rng.integers(1 << 30, 1 << 31, of.c)
        facts = {"zero_point": 4, "low": -90, "high": 127, "contract": "single"}
        inputs[f"x{k}"], inputs[f"w{k}"] = layout.pack_activations(x, cfg), layout.pack_depthwise_weights(w, cfg)
        inputs[f"par{k}"] = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=-9, **facts)
        buffers = {
            "x": rec.program.buffer(f"x{k}", (images, blocks, *of.size, *lanes)),
            "w": rec.program.buffer(f"w{k}", inputs[f"w{k}"].shape),
            "par": rec.program.buffer(f"par{k}", inputs[f"par{k}"].shape, 32, signed=False),
            "out": rec.program.buffer(f"out{k}", (images, blocks, *of.output, *lanes), kind="output"),
        }
        lower(lambda kernel, op, given=buffers: rows_on_chip(kernel, op, given, cut), rec, layer(of, fill))
        acc = products(x, w, of, fill) + bias[:, None, None]
        expected[f"out{k}"] = rounding.requantise(acc, multiplier[:, None, None], -9, 4, -90, 127, "single")
    verify(rec.program.finish())
    outputs, stats = run(rec.program, inputs)
    for name, wanted in expected.items():
        assert np.array_equal(layout.unpack_activations(outputs[name], of.c, cfg, n=of.n), wanted)
    return cut, stats


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_random_shapes_are_exact(data):
    """Any kernel, stride, dilation and padding; images of one pixel, of sizes that nothing divides, and several."""
    draw = data.draw
    cfg, fill = draw(st.sampled_from(CONFIGS)), draw(st.sampled_from([0, -5]))
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, strides, dilations = draw(st.tuples(st.integers(2, 5), st.integers(1, 6))), draw(pair), draw(pair)
    size, pads = draw(st.tuples(*[st.integers(1, 17)] * 2)), draw(st.tuples(*[st.integers(0, 5)] * 4))
    images, channels = draw(st.integers(1, 3)), draw(st.integers(1, 70 if cfg.block_in > 4 else 18))
    of = ConvShape(images, channels, size[0], size[1], channels, kernel, strides, pads, dilations, channels)
    assume(min(of.output) >= 1)
    try:
        check(cfg, of, fill)
    except Unfit:
        assume(False)


def square(channels, size, stride=1, kernel=3, images=1):
    (h, w), pad, pairs = size, kernel // 2, ((kernel, kernel), (stride, stride))
    return ConvShape(images, channels, h, w, channels, *pairs, (pad, pad, pad, pad), groups=channels)


@pytest.mark.parametrize("fill", [0, -7])
def test_the_ring_goes_around_and_every_row_is_loaded_once(fill):
    of = square(32, (120, 56), 2)
    cut, stats = check(PLUS, of, fill)
    assert cut.columns == 28 and cut.rows < 60
    assert stats.bytes_loaded["INP"] == 32 * 120 * 56


def test_several_images_of_several_planes():
    cut, stats = check(PLUS, square(40, (7, 7), images=3))
    assert cut.rows == 70 and stats.bytes_loaded["INP"] == 3 * 48 * 49
    assert stats.bytes_loaded["PAR"] == 3 * PLUS.par_entry_bytes


@pytest.mark.parametrize("name", ["tiny", "pynq_z1_plus"])
def test_images_that_are_cut_into_columns(name):
    cfg = PRESETS[name]
    of = square(cfg.block_in + 1, (9, cfg.inp_depth // 4 + 5), 2)
    cut, _ = check(cfg, of, -3)
    assert cut.columns < of.output[1]


def test_images_wider_than_the_scratchpad_with_a_row_of_padding():
    cut, _ = check(PRESETS["tiny"], square(4, (5, 300)), -5)
    assert cut.columns < 300


def test_layer_after_layer():
    """Each begins where the one before it released entries first; no token is missing."""
    check(PLUS, square(64, (12, 12)), -9, layers=3)
    check(PRESETS["tiny"], square(10, (6, 5), 2), layers=3)


def test_batches_share_an_entry():
    cfg = ROWS.replace(batch=2, extensions=ROWS.extensions | {"requant", "overwrite", "pad_value"})
    check(cfg, square(9, (8, 6), images=3), -2)


def test_wide_rows_of_a_kernel():
    """Groups of taps and a single one: 5 columns are 4 and 1."""
    _, stats = check(PLUS, square(20, (11, 10), kernel=5))
    assert stats.insns["DWGEMM"] and not stats.insns["GEMM"]


def test_loads_with_a_value_of_padding_are_shorter():
    """LOADP counts 4095 columns, LOAD 65,535."""
    cfg = PRESETS["tiny"].replace(inp_bytes=1 << 18, acc_bytes=1 << 15, wgt_bytes=1 << 9)
    of = ConvShape(1, 4, 6, 8100, 4, (2, 1), (1, 16), (1, 3, 0, 0), groups=4)
    columns = [cuts(cfg, of, fill)[0].columns for fill in (0, -3)]
    assert [of.reach(1, n)[1] for n in columns] == [8097, 4049]


def dilated(pad, dilation):
    return ConvShape(1, 16, 40, 40, 16, (3, 3), (1, 1), (pad,) * 4, (dilation,) * 2, groups=16)


@pytest.mark.parametrize(
    ("of", "cfg", "fill", "why"),
    [
        (ConvShape(1, 4, 5, 1, 4, (2, 2), (1, 3), (0, 2, 0, 0), groups=4), PLUS, 0, "padding alone"),
        (
            ConvShape(1, 4, 5, 3, 4, (2, 2), (1, 1), (0, 15, 0, 15), groups=4),
            PRESETS["tiny"].replace(inp_bytes=64),
            0,
            "padding alone",
        ),
        (square(16, (9, 9), stride=3), PLUS, 0, "without common rows"),
        (square(16, (9, 9), kernel=1), PLUS, 0, "without common rows"),
        (dilated(16, 16), PLUS, 0, "at most 15"),
        (square(16 * 65, (5, 5)), PLUS, 0, "65 entries of PAR"),
        (square(16 * 58, (5, 5)), PRESETS["pynq_z1"], 0, "more than micro-ops reach"),
        (square(16, (9, 9)), PRESETS["vta"], 0, "extensions depthwise, overwrite, requant"),
        (square(16, (9, 9)), PLUS.replace(extensions=PLUS.extensions - {"pad_value"}), -1, "extension pad_value"),
    ],
)
def test_what_stays_a_schedule(of, cfg, fill, why):
    with pytest.raises(Unfit, match=why):
        check(cfg, of, fill)
