"""Depthwise convolutions equal an independent int64 computation."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.api import build_into
from tilewright.compiler.schedule.depthwise import depthwise, reach
from tilewright.compiler.tile import Tile
from tilewright.compiler.tir.placement import Placement
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError, UnsupportedError
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import ROWS

TINY = PRESETS["tiny"]


def expected(ref, x, w, **geometry):
    """Accumulators, int64 (n, c, oy, ox)."""
    full = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "pad_value": 0} | geometry
    parts = ref.windows(x, w.shape[1:], **full)
    return sum(part * w[None, :, ky, kx, None, None].astype(np.int64) for ky, kx, part in parts)


def check(ref, cfg, n, size, channels, kernel, seed=0, epilogue=(), tile=None, vthreads=None, par=None, **geometry):
    """Build, verify, run; (the output, accumulators, the run's statistics)."""
    rng = np.random.default_rng(seed)
    x, w = ref.values(rng, 8, (n, channels, *size)), ref.values(rng, 8, (channels, *kernel))
    options = geometry | {"epilogue": epilogue, "tile": tile, "vthreads": vthreads}
    sch = depthwise(cfg, n, size[0], size[1], channels, kernel[0], kernel[1], **options)
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_depthwise_weights(w, cfg)}
    out, stats = ref.outputs_of(sch, cfg, inputs | ({} if par is None else {"q": par}))
    return layout.unpack_activations(out, channels, cfg, n=n), expected(ref, x, w, **geometry), stats


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_shapes_are_exact(ref, data):
    draw = data.draw
    kernel, size = draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), draw(st.tuples(*[st.integers(3, 9)] * 2))
    geometry = {
        "stride": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        "pad": draw(st.tuples(*[st.integers(0, 2)] * 4)),
        "pad_value": draw(st.sampled_from([0, -5])),
    }
    extent = st.integers(1, 4)
    tile = draw(st.none() | st.builds(Tile, co=extent, oy=extent, ox=extent, vthreads=st.integers(1, 3)))
    try:
        found = check(ref, TINY, draw(st.integers(1, 2)), size, draw(st.integers(1, 18)), kernel, tile=tile, **geometry)
    except CapacityError:
        assert tile is not None
        return
    assert np.array_equal(found[0], ref.wrap(found[1], 8))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
def test_requantised_and_with_threads(ref, name):
    cfg, channels = PRESETS[name], 40
    rng = np.random.default_rng(3)
    bias, multiplier = rng.integers(-99, 99, channels), rng.integers(1 << 30, 1 << 31, channels)
    facts = {"zero_point": 4, "low": -90, "high": 127, "contract": "single"}
    par = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=-9, **facts)
    epilogue, pad = [("requant", "q")], (1, 1, 1, 1)
    out, acc, stats = check(
        ref, cfg, 1, (10, 10), channels, (3, 3), epilogue=epilogue, par=par, pad=pad, pad_value=-7, vthreads=2
    )
    scaled = acc + bias[:, None, None], multiplier[:, None, None], -9
    assert np.array_equal(out, rounding.requantise(*scaled, 4, -90, 127, "single"))
    assert stats.insns["DWGEMM"] and not stats.insns["GEMM"] and stats.insns["LOAD.WGT"] == 1


@pytest.mark.circuit
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_several_taps_of_a_row_are_exact(ref, data):
    """Kernels of any width, whose rows end with one tap, several, or a whole group; dilated ones take single taps."""
    draw = data.draw
    cfg = draw(st.sampled_from([PRESETS["pynq_z1_plus"], ROWS.replace(inp_bytes=1 << 12, wgt_bytes=1 << 14)]))
    kernel, dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 9))), (1, draw(st.sampled_from([1, 1, 2])))
    size = 5, dilation[1] * (kernel[1] - 1) + draw(st.integers(1, 6))
    geometry = {"stride": (1, draw(st.integers(1, 2))), "pad": (0, draw(st.integers(0, 1)), 1, 0), "dilation": dilation}
    out, acc, stats = check(ref, cfg, 1, size, draw(st.integers(1, 20)), kernel, **geometry)
    assert np.array_equal(out, ref.wrap(acc, 8))
    issues = kernel[1] if dilation[1] > 1 else -(-kernel[1] // 4)
    # fewer for kernels of one column, whose rows lie side by side where the tile has one column, too
    n, channels, oy, ox = out.shape
    assert stats.uops <= kernel[0] * issues * n * -(-channels // cfg.block_out) * oy * ox


def test_micro_ops_reach_more_rows_of_weights_in_groups():
    plus = PRESETS["pynq_z1_plus"]
    assert [reach(plus, kw, 1) for kw in (1, 3, 4, 5, 7)] == [512, 2048, 2048, 512, 2048]
    assert reach(plus, 3, 2) == reach(PRESETS["pynq_z1"], 3, 1) == 512
    depthwise(plus, 1, 7, 7, 960, 3, 3, pad=(1, 1, 1, 1))  # 720 rows
    with pytest.raises(CapacityError, match="60 blocks of 3x3 weights are 720 rows; micro-ops of pynq_z1_plus reach"):
        depthwise(plus, 1, 7, 7, 960, 3, 3, dilation=(2, 2))


def test_weights_stay_where_micro_ops_reach_them_layer_after_layer(ref):
    cfg, channels, rng = PRESETS["tiny"], 14 * 4, np.random.default_rng(9)  # 126 of 128 rows
    layer = depthwise(cfg, 1, 4, 4, channels, 3, 3, pad=(1, 1, 1, 1))
    program, placement = Program(cfg, "both"), Placement(cfg)
    first = build_into(program, layer, {}, placement, name="a")
    build_into(program, layer, {"x": first["out"]}, placement, name="b")
    x, *w = (ref.values(rng, 8, shape) for shape in ((1, channels, 4, 4), (channels, 3, 3), (channels, 3, 3)))
    inputs = {"a.x": layout.pack_activations(x, cfg)}
    inputs |= {f"{name}.w": layout.pack_depthwise_weights(each, cfg) for name, each in zip("ab", w)}
    out, _ = run(program, inputs)
    middle = ref.wrap(expected(ref, x, w[0], pad=(1, 1, 1, 1)), 8)
    wanted = ref.wrap(expected(ref, middle, w[1], pad=(1, 1, 1, 1)), 8)
    assert np.array_equal(layout.unpack_activations(out["b.out"], channels, cfg), wanted)


def test_mistakes_are_named():
    with pytest.raises(ScheduleError, match="extension depthwise is not in configuration vta; use conv2d"):
        depthwise(PRESETS["vta"], 1, 6, 6, 16, 3, 3)
    with pytest.raises(CapacityError, match="16 blocks of 3x3 weights are 144 rows; micro-ops of tiny reach 128"):
        depthwise(TINY, 1, 6, 6, 64, 3, 3)
    with pytest.raises(ScheduleError, match="depthwise: an input of 2x2 .* is smaller than the kernel of 3x3"):
        depthwise(TINY, 1, 2, 2, 4, 3, 3)


def test_blocks_must_be_equal():
    from tilewright.compiler.intrin import depthwise_intrin

    with pytest.raises(UnsupportedError, match="block_in = 8, block_out = 16: depthwise schedules need equal blocks"):
        depthwise_intrin(PRESETS["vta"].replace(block_in=8, inp_bytes=1 << 14, wgt_bytes=1 << 16))
