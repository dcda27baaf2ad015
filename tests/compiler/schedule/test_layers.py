"""Convolutions, dense layers and pooling equal numpy, whatever the shape, tile, threads and configuration."""

import random
from typing import Any

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.api import build_into
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.intrin import depthwise_intrin
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.depthwise import depthwise, reach
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.pool import pool
from tilewright.compiler.tile import OUTPUT_DIMS, Tile
from tilewright.compiler.tir.placement import Placement
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ProgramError, ScheduleError, UnsupportedError
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import ROWS

from .conftest import CONFIGS, SearchFor, accumulators, check_layer, values, wrap

VTA, TINY, PYNQ = (PRESETS[name] for name in ("vta", "tiny", "pynq_z1"))
CHAIN = (("shr", 3), ("add", "b"), ("max", -20), ("min", 100))
CHAINS = [(), CHAIN, (("sub", "b"), ("mul", 3), ("shr", 2)), (("add", "b"), ("shl", 2))]
SAME = (1, 1, 1, 1)


def random_tile(rng, dims):
    size = {name: rng.randint(1, 4) for name in ("n", "co", "oy", "ox", "ci")}
    slots = {name: rng.randint(0, 5) for name in ("inp_slots", "wgt_slots")}
    order = tuple(rng.sample(OUTPUT_DIMS, 4))
    return Tile(**size, **slots, order=order, thread=rng.choice(dims), vthreads=rng.randint(1, 4))


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(k, marks=pytest.mark.circuit) for k in range(6, 40))])
@pytest.mark.parametrize("kind", ["conv2d", "dense", "depthwise", "pool"])
def test_random_layers_are_exact(kind, seed):
    rng = random.Random(f"{kind} {seed}")
    configs = {"depthwise": [TINY], "pool": [TINY, CONFIGS["uneven"]]}.get(kind, [*CONFIGS.values()])
    cfg, one = rng.choice(configs), kind == "dense"
    kernel = (1, 1) if one else (rng.randint(1, 3), rng.randint(1, 3))
    dilation = (rng.choice([1, 2]), 1) if kind == "conv2d" else (1, 1)
    pads: Any = (0,) * 4 if one else tuple(rng.randint(0, 1 if kind == "pool" else 2) for _ in range(4))
    least = [max(1, (k - 1) * d + 1 - p - q) for k, d, p, q in zip(kernel, dilation, pads[:2], pads[2:])]
    size = (1, 1) if one else tuple(n + rng.randint(0, 8) for n in least)
    ci, co = rng.randint(1, 3 * cfg.block_in), rng.randint(1, 3 * cfg.block_out)
    stride = (1, 1) if one else (rng.randint(1, 3), rng.randint(1, 2))
    groups = {} if kind in ("conv2d", "dense") else {"groups": co}
    shape = ConvShape(
        rng.randint(1, 3), co if groups else ci, size[0], size[1], co, kernel, stride, pads, dilation, **groups
    )
    tile = random_tile(rng, ["n", "co"] if one else OUTPUT_DIMS) if rng.random() < 0.6 else None
    options = {"tile": tile, "vthreads": rng.randint(1, 4)}
    if kind in ("conv2d", "depthwise") and "pad_value" in cfg.extensions:
        options["pad_value"] = rng.choice([0, -5])
    options["epilogue"], options["planes"] = rng.choice(CHAINS), cfg.out_bits == 8 and rng.random() < 0.4
    if kind in ("conv2d", "depthwise") and cfg is TINY and rng.random() < 0.5:
        options |= {"epilogue": [("requant", "q")], "planes": False, "contract": rng.choice(CONTRACTS)}
    print(shape, options)
    try:
        stats = check_layer(rng.choice(["max", "sum"]) if kind == "pool" else kind, cfg, shape, seed=seed, **options)
    except CapacityError:
        assert tile is not None  # only tiles that were asked for may be too large
        return
    if options["epilogue"] == [("requant", "q")]:
        assert not any(name.startswith("ALU") for name in stats.insns)
    assert bool(stats.insns["DWGEMM"]) == (kind == "depthwise") and (kind == "pool") == (not stats.macs)


@pytest.mark.parametrize("vthreads", [3, 4])
@pytest.mark.parametrize("thread", OUTPUT_DIMS)
def test_virtual_threads_along_any_dimension(thread, vthreads):
    tile = Tile(n=1, co=1, oy=2, ox=3, ci=1, thread=thread, vthreads=vthreads)
    check_layer("conv2d", VTA, ConvShape(3, 20, 5, 7, 52, (3, 3), pads=SAME), tile=tile, epilogue=CHAIN)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_virtual_threads_wait_where_token_channels_are_shallow(depth):
    tile = Tile(n=1, co=1, oy=2, ox=3, ci=1, thread="oy", vthreads=3)
    check_layer("conv2d", TINY.replace(token_depth=depth), ConvShape(1, 8, 6, 6, 8, (3, 3), pads=SAME), tile=tile)


@pytest.mark.parametrize(
    "shape, options",
    [
        (ConvShape(1, 3, 1, 1, 5), {}),
        (ConvShape(1, 3, 1, 1, 5, (3, 3), pads=SAME), {}),
        (ConvShape(1, 3, 5, 5, 5, strides=(3, 3)), {}),
        (ConvShape(1, 3, 4, 9, 5, strides=(3, 1), pads=(2, 1, 0, 2)), {}),
        (ConvShape(1, 3, 3, 40, 5, (3, 3), pads=(20, 17, 18, 16)), {}),  # more than an instruction's field holds
        (ConvShape(1, 3, 30, 3, 5, (3, 1)), {"tile": Tile(oy=7, ox=2, thread="oy", vthreads=2)}),
        (ConvShape(1, 3, 9, 9, 5, (3, 3), pads=(3, 2, 3, 2), dilations=(3, 2)), {}),
    ],
)
def test_odd_geometry(shape, options):
    check_layer("conv2d", VTA, shape, planes=True, **options)


def test_accumulators_are_rescaled_per_channel():
    stats = check_layer("conv2d", TINY, ConvShape(1, 8, 5, 5, 12, (3, 3)), epilogue=[("rescale", "q"), ("max", -3)])
    assert stats.insns["ALU.RESCALE"] >= 3


def test_a_reduction_begins_by_overwriting():
    tile = Tile(co=2, oy=2, ox=4, ci=1)
    stats = check_layer("conv2d", PYNQ, ConvShape(1, 32, 6, 6, 32, (3, 3)), tile=tile)
    assert stats.uops == 2 * 16 * 2 * 9  # no issue more than there are products
    assert stats.insns["GEMM"] == 2 * 3


def test_padding_with_a_value_is_one_load():
    shape = ConvShape(1, 16, 6, 6, 16, (3, 3), pads=SAME)
    stats = check_layer("conv2d", PYNQ, shape, pad_value=-128, vthreads=1, planes=True)
    assert stats.insns["LOADP.INP"] == 1 and not stats.insns["LOAD.INP"]


def test_threads_share_what_does_not_depend_on_them():
    def stats(thread, vthreads):
        tile = Tile(co=1, oy=2, ox=8, ci=1, thread=thread, vthreads=vthreads)
        return check_layer("conv2d", VTA, ConvShape(1, 32, 8, 8, 64), tile=tile).insns

    by_channel, by_row, alone = stats("co", 2), stats("oy", 2), stats("co", 1)
    assert by_channel["LOAD.INP"] * 2 == alone["LOAD.INP"] == by_row["LOAD.INP"]
    # two slots hold the two tiles of a block of outputs, for all rows
    assert by_row["LOAD.WGT"] * 4 == alone["LOAD.WGT"] == by_channel["LOAD.WGT"]


@pytest.mark.parametrize("slots, loads", [({}, (32, 32)), ({"wgt_slots": 8}, (32, 8)), ({"inp_slots": 2}, (8, 32))])
def test_tiles_that_stay_on_chip_are_loaded_once(slots, loads):
    tile = Tile(co=1, oy=2, ox=8, ci=1, order=("n", "oy", "ox", "co"), **slots)
    stats = check_layer("conv2d", VTA, ConvShape(1, 32, 8, 8, 64), tile=tile)
    assert (stats.insns["LOAD.INP"], stats.insns["LOAD.WGT"]) == loads


def test_byte_planes_carry_the_whole_accumulator():
    stats = check_layer("dense", VTA, ConvShape(4, 64, 1, 1, 32), planes=True, vthreads=1)
    assert stats.insns["STORE.OUT"] == 4 and stats.insns["ALU.SHR"] == 3 and stats.insns["GEMM"] == 2


def test_an_average_of_four_is_a_sum_and_a_shift():
    shape = ConvShape(1, 32, 8, 8, 32, (2, 2), (2, 2), groups=32)
    stats = check_layer("sum", VTA, shape, epilogue=[("shr", 2)], vthreads=1)
    assert stats.insns["ALU.ADD"] == stats.insns["ALU.SHR"] == 1


@pytest.mark.parametrize("cfg", [PYNQ, TINY], ids=lambda cfg: cfg.name)
def test_depthwise_weights_are_loaded_once(cfg):
    shape = ConvShape(1, 40, 10, 10, 40, (3, 3), pads=SAME, groups=40)
    options = {"pad_value": -7, "vthreads": 2, "contract": "single"}
    stats = check_layer("depthwise", cfg, shape, epilogue=[("requant", "q")], **options)
    assert stats.insns["DWGEMM"] and not stats.insns["GEMM"] and stats.insns["LOAD.WGT"] == 1


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(k, marks=pytest.mark.circuit) for k in range(6, 25))])
def test_several_taps_of_a_row_are_exact(seed):
    """Kernels of any width, whose rows end with one tap, several, or a whole group; dilated ones take single taps."""
    rng = random.Random(seed)
    cfg = rng.choice([PRESETS["pynq_z1_plus"], ROWS.replace(inp_bytes=1 << 12, wgt_bytes=1 << 14)])
    kernel, dilation, channels = (rng.randint(1, 3), rng.randint(1, 9)), (1, rng.choice([1, 1, 2])), rng.randint(1, 20)
    size = 5, dilation[1] * (kernel[1] - 1) + rng.randint(1, 6)
    geometry = (1, rng.randint(1, 2)), (0, rng.randint(0, 1), 1, 0), dilation
    shape = ConvShape(1, channels, *size, channels, kernel, *geometry, groups=channels)
    stats = check_layer("depthwise", cfg, shape, seed=seed)
    issues = kernel[1] if dilation[1] > 1 else -(-kernel[1] // 4)
    # fewer for kernels of one column, whose rows lie side by side where the tile has one column, too
    oy, ox = shape.output
    assert stats.uops <= kernel[0] * issues * -(-channels // cfg.block_out) * oy * ox


def test_micro_ops_reach_more_rows_of_weights_in_groups():
    plus = PRESETS["pynq_z1_plus"]
    assert [reach(plus, kw, 1) for kw in (1, 3, 4, 5, 7)] == [512, 2048, 2048, 512, 2048]
    assert reach(plus, 3, 2) == reach(PYNQ, 3, 1) == 512
    depthwise(plus, 1, 7, 7, 960, 3, 3, pad=SAME)  # 720 rows


def test_weights_stay_where_micro_ops_reach_them_layer_after_layer():
    channels, rng = 14 * 4, np.random.default_rng(9)  # 126 of 128 rows
    shape = ConvShape(1, channels, 4, 4, channels, (3, 3), pads=SAME, groups=channels)
    layer = depthwise(TINY, 1, 4, 4, channels, 3, 3, pad=SAME)
    program, placement = Program(TINY, "both"), Placement(TINY)
    first = build_into(program, layer, {}, placement, name="a")
    build_into(program, layer, {"x": first["out"]}, placement, name="b")
    x, *weights = (values(rng, 8, shape) for shape in ((1, channels, 4, 4), (channels, 3, 3), (channels, 3, 3)))
    inputs = {"a.x": layout.pack_activations(x, TINY)}
    inputs |= {f"{name}.w": layout.pack_depthwise_weights(w, TINY) for name, w in zip("ab", weights)}
    out, _ = run(program, inputs)
    for w in weights:
        x = wrap(accumulators("depthwise", x, w, shape), 8)
    assert np.array_equal(layout.unpack_activations(out["b.out"], channels, TINY), x)


def test_a_search_of_pooling_is_offered_tiles_that_fit_and_what_it_finds_is_used():
    cost, layer = {}, layer_of(pool, VTA, 1, 14, 14, 40, 3, 3, pad_value=0)
    for threads in (1, 2):
        cost |= (found := dict(layer.ranked(threads)))
        assert list(found.values()) == sorted(found.values())
        assert layer.best(threads) in found and layer.best(threads) in layer.promising(threads, 3)
        assert {tile.vthreads for tile in found} == {threads} and len(found) > 40
    shape = ConvShape(1, 40, 14, 14, 40, (3, 3), groups=40)
    for tile in (min(cost, key=lambda tile: cost[tile]), Tile(co=1, oy=4, ox=12, thread="oy", vthreads=2)):
        assert tile in cost
        searched = check_layer("sum", VTA, shape, search=SearchFor(tile))
        assert searched.insns == check_layer("sum", VTA, shape, tile=tile).insns


CONV = {"n": 1, "h": 6, "w": 6, "ci": 16, "co": 16, "kh": 3, "kw": 3}
POOL = {"n": 1, "h": 4, "w": 4, "c": 16, "kh": 2, "kw": 2}
DEPTHWISE = {"n": 1, "h": 6, "w": 6, "c": 64, "kh": 3, "kw": 3}


@pytest.mark.parametrize("ready, arguments, cfg, error, text", [
    (conv2d, {"kh": 9}, VTA, ScheduleError, "^conv2d: an input of 6x6 with pad .* smaller than the kernel of 9x3; pad"),
    (conv2d, {"kh": 4, "kw": 1, "dilation": (2, 1)}, VTA, ScheduleError,
     r"is smaller than the kernel of 4x1 with dilation \(2, 1\), which spans 7x1"),
    (conv2d, {"dilation": (0, 1)}, VTA, ScheduleError,
     r"conv2d: input 6x6, kernel 3x3 with dilation \(0, 1\), .* everything else at least 1"),
    (conv2d, {"epilogue": [("div", 2)]}, VTA, ScheduleError, r"epilogue stage \('div', 2\): must be one of add"),
    (conv2d, {"epilogue": [("add", "w")]}, VTA, ScheduleError, "'w': the name is taken"),
    (conv2d, {"epilogue": [("requant", "q"), ("max", 0)]}, VTA, ScheduleError, "must be the last one, without planes"),
    (conv2d, {"epilogue": [("requant", "q")], "planes": True}, VTA, ScheduleError, "the last one, without planes"),
    (conv2d, {"epilogue": [("rescale", 3)]}, VTA, ScheduleError, "must name packed parameters, not a number"),
    (conv2d, {"epilogue": [("add", 40000)]}, VTA, ScheduleError, "40000 does not fit an immediate of 16 bits"),
    (conv2d, {"tile": Tile(oy=0)}, VTA, ScheduleError, "Tile.oy = 0: must be at least 1"),
    (conv2d, {"tile": Tile(), "vthreads": 5}, VTA, ScheduleError, "Tile.vthreads = 5: must be 1 to 4"),
    (conv2d, {"tile": Tile(thread="ky")}, VTA, ScheduleError, "Tile.thread = 'ky'"),
    (conv2d, {"tile": Tile(order=("co", "oy"))}, VTA, ScheduleError, "Tile.order"),
    (conv2d, {"h": 56, "w": 56, "co": 64, "tile": Tile(co=4, oy=30, ox=54)}, VTA, CapacityError,
     r"local.acc is too small: .* 'acc' with 6480 .* vta has 2048"),
    (conv2d, {"h": 20, "w": 20, "kh": 20, "kw": 20, "ci": 4, "co": 4}, TINY, CapacityError,
     "no tile fits tiny: one output block needs 400 entries"),
    (conv2d, {"pad": SAME, "pad_value": 3}, VTA, ProgramError, "extension pad_value is not in configuration vta"),
    (pool, {"kh": 3, "kw": 3, "pad": SAME}, VTA, ProgramError, "extension pad_value is not in configuration vta"),
    (pool, {"kind": "median"}, VTA, ScheduleError, "kind 'median' must be one of max, sum"),
    (pool, {"kh": 5}, VTA, ScheduleError, "^pool: an input of 4x4 with pad .* smaller than the kernel of 5x2; pad it$"),
    (pool, {"w": 0}, VTA, ScheduleError, "^pool: w = 0: must be at least 1"),
    (pool, {"h": 60, "w": 60, "kh": 60, "kw": 60}, VTA, CapacityError,
     "a window of 60x60 does not fit the 2048 accumulators of vta"),
    (depthwise, {}, VTA, ScheduleError, "extension depthwise is not in configuration vta; use conv2d"),
    (depthwise, {}, TINY, CapacityError, "16 blocks of 3x3 weights are 144 rows; micro-ops of tiny reach 128; split"),
    (depthwise, {"c": 960, "dilation": (2, 2)}, PRESETS["pynq_z1_plus"], CapacityError,
     "60 blocks of 3x3 weights are 720 rows; micro-ops of pynq_z1_plus reach"),
    (depthwise, {"h": 2, "w": 2, "c": 4}, TINY, ScheduleError, "depthwise: .* 2x2 .* smaller than the kernel of 3x3"),
    (dense, {"n": 1, "ci": 16, "co": 16, "tile": Tile(thread="oy")}, VTA, ScheduleError,
     "Tile.thread = 'oy': must be one of n, co"),
])  # fmt: skip
def test_mistakes_are_named(ready, arguments, cfg, error, text):
    sizes = {conv2d: CONV, pool: POOL, depthwise: DEPTHWISE}.get(ready, {})
    with pytest.raises(error, match=text):
        build(ready(cfg, **sizes | arguments), cfg)


def test_depthwise_blocks_must_be_equal():
    with pytest.raises(UnsupportedError, match="block_in = 8, block_out = 16: depthwise schedules need equal blocks"):
        depthwise_intrin(VTA.replace(block_in=8, inp_bytes=1 << 14, wgt_bytes=1 << 16))
