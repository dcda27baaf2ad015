"""Convolutions equal an independent int64 convolution, whatever the shape, tile, threads and configuration."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.tile import OUTPUT_DIMS, Tile
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ProgramError, ScheduleError
from tilewright.runtime import layout

CHAIN = (("shr", 3), ("add", "b"), ("max", -20), ("min", 100))


def check(ref, cfg, n, size, ci, co, kernel, seed=0, epilogue=(), planes=False, **geometry):
    """Build, verify, run, compare; the run's statistics."""
    rng = np.random.default_rng(seed)
    x = ref.values(rng, cfg.inp_bits, (n, ci, *size))
    w = ref.values(rng, cfg.wgt_bits, (co, ci, *kernel))
    b = rng.integers(-3000, 3000, co)
    shape = {key: geometry[key] for key in ("stride", "pad", "dilation", "pad_value") if key in geometry}
    sch = conv2d(cfg, n, size[0], size[1], ci, co, kernel[0], kernel[1], epilogue=epilogue, planes=planes, **geometry)
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg)}
    if any(other == "b" for _, other in epilogue):
        inputs["b"] = layout.pack_bias(b, cfg)
    packed, stats = ref.outputs_of(sch, cfg, inputs, planes)
    acc = ref.epilogue(ref.convolve(x, w, **shape), epilogue, {"b": b[None, :, None, None]})
    expected = acc if planes else ref.wrap(acc, cfg.out_bits)
    assert np.array_equal(layout.unpack_activations(packed, co, cfg, n=n), expected)
    return stats


def tiles():
    size = st.integers(1, 5)
    return st.builds(
        Tile,
        n=st.integers(1, 2),
        co=st.integers(1, 3),
        oy=size,
        ox=size,
        ci=st.integers(1, 3),
        order=st.permutations(OUTPUT_DIMS).map(tuple),
        thread=st.sampled_from(OUTPUT_DIMS),
        vthreads=st.integers(1, 4),
        inp_slots=st.integers(0, 5),
        wgt_slots=st.integers(0, 5),
    )


@pytest.mark.circuit
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_convolutions_are_exact(ref, data):
    draw = data.draw
    cfg = ref.configs[draw(st.sampled_from(sorted(ref.configs)))]
    kernel, dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), draw(st.sampled_from([(1, 1), (2, 1)]))
    pad = draw(st.tuples(*[st.integers(0, 2)] * 4))
    low = [(k - 1) * d + 1 - before - after for k, d, before, after in zip(kernel, dilation, pad[:2], pad[2:])]
    size = tuple(draw(st.integers(max(1, least), max(1, least) + 9)) for least in low)
    geometry = {
        "stride": draw(st.tuples(st.integers(1, 3), st.integers(1, 2))),
        "pad": pad,
        "dilation": dilation,
        "pad_value": draw(st.sampled_from([0, -5])) if "pad_value" in cfg.extensions else 0,
        "tile": draw(st.none() | tiles()),
    }
    if geometry["tile"] is None:
        geometry["vthreads"] = draw(st.integers(1, 4))
    channels = draw(st.integers(1, 3 * cfg.block_in)), draw(st.integers(1, 3 * cfg.block_out))
    epilogue, planes = draw(st.sampled_from([(), CHAIN])), draw(st.booleans()) and cfg.out_bits == 8
    try:
        check(ref, cfg, draw(st.integers(1, 3)), size, *channels, kernel, 0, epilogue, planes, **geometry)
    except CapacityError:
        assert geometry["tile"] is not None  # only tiles that were asked for may be too large


def packed(cfg, rng, channels, contract):
    """(PAR entries of random scales, R and clamp of accumulators with them, by hw/rounding.py)."""
    bias = rng.integers(-3000, 3000, channels)
    multiplier, exponent = rng.integers(1 << 30, 1 << 31, channels), rng.integers(-14, -4, channels)
    facts = {"zero_point": -7, "low": -100, "high": 90, "contract": contract}
    par = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=exponent, **facts)

    def apply(acc):
        scale = multiplier[:, None, None], exponent[:, None, None]
        return rounding.requantise(acc + bias[:, None, None], *scale, -7, -100, 90, contract)

    return par, apply


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_requantised_convolutions_are_exact(ref, data):
    draw, cfg = data.draw, PRESETS["tiny"]
    seed = draw(st.integers(0, 1 << 16))
    rng, kernel, pad = np.random.default_rng(seed), draw(st.integers(1, 3)), draw(st.tuples(*[st.integers(0, 2)] * 4))
    h, w, ci, co = draw(st.integers(3, 9)), draw(st.integers(3, 9)), draw(st.integers(1, 12)), draw(st.integers(1, 20))
    x, weights = ref.values(rng, 8, (1, ci, h, w)), ref.values(rng, 8, (co, ci, kernel, kernel))
    par, requantised = packed(cfg, rng, co, draw(st.sampled_from(rounding.CONTRACTS)))
    geometry = {
        "pad": pad,
        "pad_value": draw(st.sampled_from([0, -5])),
        "stride": draw(st.sampled_from([(1, 1), (2, 1)])),
    }
    tile = draw(st.none() | tiles())
    try:
        sch = conv2d(cfg, 1, h, w, ci, co, kernel, kernel, **geometry, epilogue=[("requant", "q")], tile=tile)
        inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(weights, cfg), "q": par}
        out, stats = ref.outputs_of(sch, cfg, inputs)
    except CapacityError:
        assert tile is not None
        return
    assert np.array_equal(layout.unpack_activations(out, co, cfg), requantised(ref.convolve(x, weights, **geometry)))
    assert not any(name.startswith("ALU") for name in stats.insns)


def test_accumulators_are_rescaled_per_channel(ref):
    cfg, rng = PRESETS["tiny"], np.random.default_rng(1)
    x, w = ref.values(rng, 8, (1, 8, 5, 5)), ref.values(rng, 8, (12, 8, 3, 3))
    multiplier, exponent = rng.integers(1 << 30, 1 << 31, 12), rng.integers(-9, -4, 12)
    zero = np.zeros(12, np.int64)
    par = layout.pack_par(
        cfg, bias=zero, multiplier=multiplier, exponent=exponent, zero_point=0, low=0, high=0, contract="double"
    )
    sch = conv2d(cfg, 1, 5, 5, 8, 12, 3, 3, epilogue=[("rescale", "r"), ("max", -3)])
    inputs = {"x": layout.pack_activations(x, cfg), "w": layout.pack_weights(w, cfg), "r": par}
    out, stats = ref.outputs_of(sch, cfg, inputs)
    scaled = rounding.rescale(ref.convolve(x, w), multiplier[:, None, None], exponent[:, None, None])
    assert np.array_equal(layout.unpack_activations(out, 12, cfg), ref.wrap(np.maximum(scaled, -3), 8))
    assert stats.insns["ALU.RESCALE"] >= 3


def test_a_reduction_begins_by_overwriting(ref):
    stats = check(ref, PRESETS["pynq_z1"], 1, (6, 6), 32, 32, (3, 3), tile=Tile(co=2, oy=2, ox=4, ci=1))
    assert stats.uops == 2 * 16 * 2 * 9  # no issue more than there are products
    assert stats.insns["GEMM"] == 2 * 3


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_virtual_threads_wait_where_token_channels_are_shallow(ref, depth):
    cfg = ref.configs["tiny"].replace(token_depth=depth)
    tile = Tile(n=1, co=1, oy=2, ox=3, ci=1, thread="oy", vthreads=3)
    check(ref, cfg, 1, (6, 6), 8, 8, (3, 3), pad=(1, 1, 1, 1), tile=tile)


@pytest.mark.parametrize("vthreads", [1, 2, 3, 4])
@pytest.mark.parametrize("thread", OUTPUT_DIMS)
def test_virtual_threads_along_any_dimension(ref, thread, vthreads):
    tile = Tile(n=1, co=1, oy=2, ox=3, ci=1, thread=thread, vthreads=vthreads)
    check(ref, ref.configs["vta"], 3, (7, 7), 20, 70, (3, 3), pad=(1, 1, 1, 1), tile=tile, epilogue=CHAIN)


@pytest.mark.parametrize(
    "size, kernel, geometry",
    [
        ((1, 1), (1, 1), {}),
        ((1, 1), (3, 3), {"pad": (1, 1, 1, 1)}),
        ((5, 5), (1, 1), {"stride": (3, 3)}),
        ((4, 9), (1, 1), {"stride": (3, 1), "pad": (2, 1, 0, 2)}),
        ((3, 40), (3, 3), {"pad": (20, 17, 18, 16)}),  # more padding than an instruction's field holds
        ((30, 3), (3, 1), {"tile": Tile(oy=7, ox=2, thread="oy", vthreads=2)}),
        ((9, 9), (3, 3), {"dilation": (3, 2), "pad": (3, 2, 3, 2)}),
    ],
)
def test_odd_geometry(ref, size, kernel, geometry):
    check(ref, ref.configs["vta"], 1, size, 3, 5, kernel, planes=True, **geometry)


def test_padding_with_a_value_is_one_load(ref):
    cfg = PRESETS["pynq_z1"]
    stats = check(ref, cfg, 1, (6, 6), 16, 16, (3, 3), pad=(1, 1, 1, 1), pad_value=-128, vthreads=1, planes=True)
    assert stats.insns["LOADP.INP"] == 1 and not stats.insns["LOAD.INP"]


def test_padding_with_a_value_needs_the_extension():
    sch = conv2d(PRESETS["vta"], 1, 6, 6, 16, 16, 3, 3, pad=(1, 1, 1, 1), pad_value=3)
    with pytest.raises(ProgramError, match="extension pad_value is not in configuration vta"):
        build(sch, "vta")


def test_threads_share_what_does_not_depend_on_them(ref):
    def stats(thread, vthreads):
        tile = Tile(co=1, oy=2, ox=8, ci=1, thread=thread, vthreads=vthreads)
        return check(ref, ref.configs["vta"], 1, (8, 8), 32, 64, (1, 1), tile=tile)

    by_channel, by_row, alone = stats("co", 2), stats("oy", 2), stats("co", 1)
    assert by_channel.insns["LOAD.INP"] * 2 == alone.insns["LOAD.INP"] == by_row.insns["LOAD.INP"]
    # two slots hold the two tiles of a block of outputs, for all rows
    assert by_row.insns["LOAD.WGT"] * 4 == alone.insns["LOAD.WGT"] == by_channel.insns["LOAD.WGT"]


def test_tiles_that_stay_on_chip_are_loaded_once(ref):
    def stats(**slots):
        tile = Tile(co=1, oy=2, ox=8, ci=1, order=("n", "oy", "ox", "co"), **slots)
        return check(ref, ref.configs["vta"], 1, (8, 8), 32, 64, (1, 1), tile=tile).insns

    none, all_weights, one_row = stats(), stats(wgt_slots=8), stats(inp_slots=2)
    assert (none["LOAD.INP"], none["LOAD.WGT"]) == (4 * 4 * 2, 4 * 4 * 2)
    assert (all_weights["LOAD.INP"], all_weights["LOAD.WGT"]) == (4 * 4 * 2, 4 * 2)
    assert (one_row["LOAD.INP"], one_row["LOAD.WGT"]) == (4 * 2, 4 * 4 * 2)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"kh": 9}, "conv2d: an input of 6x6 with pad .* is smaller than the kernel of 9x3; pad it$"),
        (
            {"kh": 4, "kw": 1, "dilation": (2, 1)},
            r"is smaller than the kernel of 4x1 with dilation \(2, 1\), which spans 7x1",
        ),
        ({"dilation": (0, 1)}, r"conv2d: input 6x6, kernel 3x3 with dilation \(0, 1\), .* everything else at least 1"),
        ({"epilogue": [("div", 2)]}, r"epilogue stage \('div', 2\): must be one of add"),
        ({"epilogue": [("add", "w")]}, "'w': the name is taken"),
        (
            {"epilogue": [("requant", "q"), ("max", 0)]},
            r"\('requant', 'q'\): must be the last one, without planes",
        ),
        ({"epilogue": [("requant", "q")], "planes": True}, "must be the last one, without planes"),
        ({"epilogue": [("rescale", 3)]}, r"\('rescale', 3\): must name packed parameters, not a number"),
        ({"tile": Tile(oy=0)}, "Tile.oy = 0: must be at least 1"),
        ({"tile": Tile(), "vthreads": 5}, "Tile.vthreads = 5: must be 1 to 4"),
        ({"tile": Tile(thread="ky")}, "Tile.thread = 'ky'"),
        ({"tile": Tile(order=("co", "oy"))}, "Tile.order"),
        ({"epilogue": [("add", 40000)]}, "40000 does not fit an immediate of 16 bits"),
    ],
)
def test_mistakes_are_named(change, text):
    arguments: dict[str, Any] = {"n": 1, "h": 6, "w": 6, "ci": 16, "co": 16, "kh": 3, "kw": 3} | change
    with pytest.raises(ScheduleError, match=text):
        build(conv2d(PRESETS["vta"], **arguments), "vta")


def test_a_tile_that_does_not_fit_is_named():
    sch = conv2d(PRESETS["vta"], 1, 56, 56, 16, 64, 3, 3, tile=Tile(co=4, oy=30, ox=54))
    with pytest.raises(CapacityError, match=r"local.acc is too small: .* 'acc' with 6480 .* vta has 2048"):
        build(sch, "vta")


def test_no_tile_fits_a_huge_kernel():
    with pytest.raises(CapacityError, match="no tile fits tiny: one output block needs 400 entries"):
        conv2d(PRESETS["tiny"], 1, 20, 20, 4, 4, 20, 20)
