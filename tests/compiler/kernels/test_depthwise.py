"""Depthwise convolutions: rows that stay on chip equal an independent int64 computation; when a schedule is faster."""

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tilewright.compiler import cost
from tilewright.compiler import graph as g
from tilewright.compiler.api import build
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.kernels.depthwise import cuts, depthwise_program, faster_rows, rows_on_chip
from tilewright.compiler.kernels.language import Unfit, lower
from tilewright.compiler.kernels.recording import Recording
from tilewright.compiler.schedule.depthwise import depthwise_of
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError, UnsupportedError
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify
from tilewright.sim.dram import ZYNQ_HP, load_dram
from tilewright.sim.random_programs import ROWS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]
EPILOGUE = [("requant", "par")]
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


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
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


BATCHES = ROWS.replace(batch=2, extensions=ROWS.extensions | {"requant", "overwrite", "pad_value"})
TINY = PRESETS["tiny"]


@pytest.mark.parametrize("cfg, of, fill, layers, columns", [
    (PLUS, square(40, (7, 7), images=3), 0, 1, 7),  # a part of several planes
    (PLUS, square(20, (11, 10), kernel=5), 0, 1, 10),  # groups of four taps and a single one
    (TINY, square(5, (9, TINY.inp_depth // 4 + 5), 2), -3, 1, 18),  # parts of rows
    (TINY, square(4, (5, 300)), -5, 1, 30),  # wider than the scratchpad, with a row of padding
    (PLUS, square(64, (12, 12)), -9, 3, 12),  # each begins where the one before it released entries first
    (TINY, square(10, (6, 5), 2), 0, 3, 3),
    (BATCHES, square(9, (8, 6), images=3), -2, 1, 6),
])  # fmt: skip
def test_planes_and_parts(cfg, of, fill, layers, columns):
    cut, stats = check(cfg, of, fill, layers=layers)
    assert cut.columns == columns and stats.insns["DWGEMM"] and not stats.insns["GEMM"]


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


@pytest.mark.parametrize(
    ("of", "cfg"),
    [(square(144, (28, 28), 2), PLUS), (square(33, (9, 9), 1, 1), PLUS), (square(20, (6, 6)), PRESETS["tiny"])],
)
def test_a_layer_as_a_program_of_its_own(of, cfg):
    """Inputs and output are those of the schedule, and so are the values; it is no slower."""
    program, scheduled = (
        depthwise_program(cfg, of, -3),
        build(depthwise_of(cfg, of, pad_value=-3, epilogue=EPILOGUE), cfg),
    )
    rng = np.random.default_rng(4)
    weights = rng.integers(-128, 128, (of.c, *of.kernel)).astype(np.int8)
    scale = {"multiplier": rng.integers(1 << 30, 1 << 31, of.c), "exponent": np.full(of.c, -9)}
    limits = {"zero_point": 3, "low": -128, "high": 127, "contract": "double"}
    values = {"w": layout.pack_depthwise_weights(weights, cfg)}
    values["par"] = layout.pack_par(cfg, bias=rng.integers(-999, 999, of.c), **scale, **limits)
    values["x"] = layout.pack_activations(rng.integers(-128, 128, (1, of.c, *of.size)).astype(np.int8), cfg)
    assert np.array_equal(run(program, values)[0]["out"], run(scheduled, values)[0]["out"])
    assert predict(program, cfg).cycles <= predict(scheduled, cfg).cycles


def test_the_memory_around_is_that_of_the_timing_model():
    of = square(96, (56, 56), 2)
    assert faster_rows(PLUS, of, 0, alone=True) is not None
    assert cost.timed_memory(PLUS) == ZYNQ_HP
    with cost.on_memory(load_dram("zynq_hp,latency=400,port_bytes=4"), PLUS):
        memory = cost.timed_memory(PLUS)
        assert (memory.latency, memory.port_bytes, memory.outstanding) == (400, 4, 8)


def test_products_that_bound_a_layer_leave_it_to_the_schedule():
    """Behind another layer, whose products hide the first loads; where it is alone they do not."""
    of, cfg = square(64, (12, 12)), PRESETS["pynq_z1"]
    ways = [faster_rows(cfg, of, -128, alone=alone) for alone in (True, False)]
    assert ways[0] is not None and ways[1] is None


@pytest.mark.parametrize("bits", [{"inp_bits": 4}, {"wgt_bits": 4}])
def test_widths_of_buffers_are_those_of_the_configuration(bits):
    of, cfg = square(9, (17, 17), 2), PRESETS["tiny"].replace(**bits)
    scheduled = depthwise_of(cfg, of, epilogue=EPILOGUE)
    assert faster_rows(cfg, of, 0, alone=True) is not None
    buffers = [program.buffers for program in (depthwise_program(cfg, of), build(scheduled, cfg))]
    widths = [{name: (b.bits, b.nbytes) for name, b in every.items()} for every in buffers]
    assert widths[0] == widths[1]


def test_configurations_without_depthwise_are_named():
    with pytest.raises(ScheduleError, match="extension depthwise is not in configuration vta"):
        depthwise_program(PRESETS["vta"], square(32, (24, 24)))


def test_circuits_that_cannot_be_built_are_named():
    """The timing model has none; the schedule alone would be a program for the behavioural model."""
    with pytest.raises(UnsupportedError, match="axi_bits = 256: extension requant needs entries of PAR"):
        depthwise_program(PRESETS["tiny"].replace(axi_bits=256), square(8, (12, 12)))
