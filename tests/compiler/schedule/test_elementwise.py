"""Element-wise chains equal numpy on int32."""

import random
from typing import Any

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.compiler.schedule.elementwise import elementwise
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune.tasks import cycles_of
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.runtime import layout

from .conftest import CONFIGS, SearchFor, apply_stages, outputs_of, wrap

VTA = PRESETS["vta"]


def check(cfg, entries, chain, dtype="int32", **tiling):
    rng = np.random.default_rng(0)
    names = dict.fromkeys(["x", *(other for _, other in chain if isinstance(other, str))])
    bits = 32 if dtype == "int32" else 8
    shape = (entries, cfg.batch, cfg.block_out)
    inputs = {name: rng.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(dtype) for name in names}
    out, stats = outputs_of(elementwise(cfg, entries, chain, dtype=dtype, **tiling), cfg, inputs)
    wide = {name: array.astype(np.int64) for name, array in inputs.items()}
    assert np.array_equal(out, wrap(apply_stages(wide["x"], chain, wide), cfg.out_bits))
    return stats


def stage(rng):
    if rng.random() < 0.3:
        return rng.choice(["shr", "shl"]), rng.randint(0, 31)
    other = rng.choice(["y", "z", 1 - (1 << 15), (1 << 15) - 1, rng.randint(-999, 999) or 1])
    return rng.choice(["add", "sub", "mul", "max", "min"]), other


@pytest.mark.parametrize("seed", range(16))
def test_random_chains_are_exact(seed):
    rng = random.Random(seed)
    cfg = rng.choice([*CONFIGS.values()])
    chain, entries = [stage(rng) for _ in range(rng.randint(0, 4))], rng.randint(1, 150)
    tile, dtype = rng.choice([None, rng.randint(1, 40)]), rng.choice(["int32", "int8"])
    print(cfg.name, chain, entries, tile, dtype)
    try:
        wide = "int32" if "acc8" not in cfg.extensions else dtype
        check(cfg, entries, chain, wide, tile=tile, vthreads=rng.randint(1, 4))
    except CapacityError:
        assert tile is not None


def test_a_long_shift_is_several_that_every_implementation_agrees_on():
    assert check(VTA, 20, [("shr", 31)], vthreads=1).insns["ALU.SHR"] == 3


def test_a_search_is_offered_tiles_that_fit_and_what_it_finds_is_used():
    chain = [("add", "y"), ("shr", 1)]
    layer = layer_of(elementwise, VTA, 900, chain, vthreads=2)
    found = dict(layer.ranked(2))
    assert layer.best(2) in found and layer.best(2) in layer.promising(2, 3) and len(layer.promising(2, 3)) <= 4
    assert list(found.values()) == sorted(found.values()) and len(found) > 20
    assert all(-(-900 // tile.n) >= 2 == tile.vthreads for tile in found)
    for tile in (next(iter(found)), min(found, key=lambda tile: tile.n)):
        check(VTA, 900, chain, search=SearchFor(tile))
    seen = elementwise(VTA, 900, chain, search=SearchFor(Tile(n=7, thread="n", vthreads=2)))
    assert seen.mod.script() == elementwise(VTA, 900, chain, tile=7).mod.script()


def test_the_largest_tile_fits_where_micro_ops_reach_few_accumulators():
    cfg, chain = CONFIGS["uneven"], [("add", "y"), ("add", "z")]  # 256 entries of inputs, 512 accumulators
    tile = max((tile for tile, _ in layer_of(elementwise, cfg, 900, chain).ranked(1)), key=lambda tile: tile.n)
    assert tile.n == 256 // 2
    check(cfg, 900, chain, search=SearchFor(tile))


def test_the_tile_that_costs_least_beats_the_largest():
    pynq, chain = PRESETS["pynq_z1"], [("add", "y"), ("shr", 1)]
    schedules = (elementwise(pynq, 1024, chain, dtype="int8", tile=tile) for tile in (None, 512))
    ours, largest = (cycles_of(build(sch, pynq).finish(), "timing") for sch in schedules)
    assert ours < 0.9 * largest


@pytest.mark.parametrize(
    "entries, chain, options, text",
    [
        (4, [], {"dtype": "int16"}, "dtype 'int16' must be int8 or int32"),
        (4, [], {"vthreads": 9}, "vthreads = 9: must be 1 to 4"),
        (4, [("mul", 0)], {}, "the result would always be 0"),
        (0, [], {}, "entries = 0"),
        (4, [("add", "y")], {"operands": {"z": []}}, "operand 'z' must be one of x, y"),
        (4, [("add", "y")], {"operands": {"y": [("requant", "q")]}}, "only the chain may end with requant"),
    ],
)
def test_mistakes_are_named(entries, chain, options, text):
    with pytest.raises(ScheduleError, match=text):
        elementwise(VTA, entries, chain, **options)


def test_tensors_that_do_not_fit_are_counted():
    many, few = [("add", f"t{k}") for k in range(40)], CONFIGS["tiny"].replace(name="few", acc_bytes=512)
    with pytest.raises(CapacityError, match="41 tensors do not fit the accumulators of few"):
        elementwise(few, 4, many)


@pytest.mark.parametrize("entries, tiling", [(1, {}), (45, {}), (200, {"tile": 7, "vthreads": 3})])
def test_sums_of_tensors_of_two_scales_are_requantised(entries, tiling):
    cfg, rng = PRESETS["tiny"], np.random.default_rng(entries)
    x, y = (rng.integers(-128, 128, (entries, 1, 4)).astype(np.int8) for _ in range(2))
    facts: dict[str, Any] = {"zero_point": 0, "low": -128, "high": 127, "contract": "double"}
    r = layout.pack_par(cfg, **facts, bias=np.zeros(4, np.int64), multiplier=1234567890, exponent=-1)
    facts["high"] = 80
    q = layout.pack_par(cfg, **facts, bias=np.full(4, 99), multiplier=1987654321, exponent=-17)
    chains = {"x": [("shl", 19)], "y": [("add", 5), ("shl", 16), ("rescale", "r")]}
    sch = elementwise(cfg, entries, [("add", "y"), ("requant", "q")], operands=chains, dtype="int8", **tiling)
    out, stats = outputs_of(sch, cfg, {"x": x, "y": y, "r": r, "q": q})
    scaled = rounding.rescale((y.astype(np.int64) + 5) << 16, 1234567890, -1)
    total = wrap((x.astype(np.int64) << 19) + scaled + 99, 32)
    assert np.array_equal(out, rounding.requantise(total, 1987654321, -17, 0, -128, 80))
    assert stats.insns["LOAD.PAR"] == 2
