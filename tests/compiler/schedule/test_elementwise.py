"""Element-wise chains equal numpy on int32."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import build
from tilewright.compiler.schedule.elementwise import elementwise
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune.tasks import cycles_of
from tilewright.hw import rounding
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.runtime import layout


def check(ref, cfg, entries, chain, dtype, **tiling):
    rng = np.random.default_rng(0)
    names = dict.fromkeys(["x", *(other for _, other in chain if isinstance(other, str))])
    bits = 32 if dtype == "int32" else 8
    shape = (entries, cfg.batch, cfg.block_out)
    inputs = {name: rng.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(dtype) for name in names}
    out, stats = ref.outputs_of(elementwise(cfg, entries, chain, dtype=dtype, **tiling), cfg, inputs)
    wide = {name: array.astype(np.int64) for name, array in inputs.items()}
    assert np.array_equal(out, ref.wrap(ref.epilogue(wide["x"], chain, wide), cfg.out_bits))
    return stats


def stages():
    number = st.tuples(st.sampled_from(["add", "sub", "mul", "max", "min"]), st.integers(-(1 << 15) + 1, (1 << 15) - 1))
    tensor = st.tuples(st.sampled_from(["add", "sub", "mul", "max", "min"]), st.sampled_from(["y", "z"]))
    shift = st.tuples(st.sampled_from(["shr", "shl"]), st.integers(0, 31))
    return number.filter(lambda stage: stage != ("mul", 0)) | tensor | shift


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_chains_are_exact(ref, data):
    draw = data.draw
    cfg = ref.configs[draw(st.sampled_from(sorted(ref.configs)))]
    chain, entries = draw(st.lists(stages(), max_size=4)), draw(st.integers(1, 150))
    tiling = {"tile": draw(st.none() | st.integers(1, 40)), "vthreads": draw(st.integers(1, 4))}
    dtypes = ["int32", *(["int8"] if "acc8" in cfg.extensions else [])]
    try:
        check(ref, cfg, entries, chain, draw(st.sampled_from(dtypes)), **tiling)
    except CapacityError:
        assert tiling["tile"] is not None


def test_a_long_shift_is_several_that_every_implementation_agrees_on(ref):
    stats = check(ref, PRESETS["vta"], 20, [("shr", 31)], "int32", vthreads=1)
    assert stats.insns["ALU.SHR"] == 3


def test_a_search_is_offered_tiles_that_fit_and_what_it_finds_is_used(ref):
    layer = layer_of(elementwise, PRESETS["vta"], 900, [("add", "y"), ("shr", 1)], vthreads=2)
    found = dict(layer.ranked(2))
    assert layer.best(2) in found and layer.best(2) in layer.promising(2, 3) and len(layer.promising(2, 3)) <= 4
    assert list(found.values()) == sorted(found.values()) and len(found) > 20
    assert all(-(-900 // tile.n) >= 2 == tile.vthreads for tile in found)
    for tile in (next(iter(found)), min(found, key=lambda tile: tile.n)):
        check(ref, PRESETS["vta"], 900, [("add", "y"), ("shr", 1)], "int32", search=ref.search_for(tile))
    seen = elementwise(
        PRESETS["vta"], 900, [("add", "y"), ("shr", 1)], search=ref.search_for(Tile(n=7, thread="n", vthreads=2))
    )
    same = elementwise(PRESETS["vta"], 900, [("add", "y"), ("shr", 1)], tile=7)
    assert seen.mod.script() == same.mod.script()


def test_the_tile_that_costs_least_beats_the_largest():
    pynq, chain = PRESETS["pynq_z1"], [("add", "y"), ("shr", 1)]
    schedules = (elementwise(pynq, 1024, chain, dtype="int8", tile=tile) for tile in (None, 512))
    ours, largest = (cycles_of(build(sch, pynq).finish(), "timing") for sch in schedules)
    assert ours < 0.9 * largest


def test_mistakes_are_named(ref):
    vta = ref.configs["vta"]
    with pytest.raises(ScheduleError, match="dtype 'int16' must be int8 or int32"):
        elementwise(vta, 4, [], dtype="int16")
    with pytest.raises(ScheduleError, match="vthreads = 9: must be 1 to 4"):
        elementwise(vta, 4, [], vthreads=9)
    with pytest.raises(ScheduleError, match="the result would always be 0"):
        elementwise(vta, 4, [("mul", 0)])
    with pytest.raises(ScheduleError, match="entries = 0"):
        elementwise(vta, 0, [])
    with pytest.raises(ScheduleError, match="operand 'z' must be one of x, y"):
        elementwise(vta, 4, [("add", "y")], operands={"z": []})
    with pytest.raises(ScheduleError, match="only the chain may end with requant"):
        elementwise(vta, 4, [("add", "y")], operands={"y": [("requant", "q")]})
    many, few = [("add", f"t{k}") for k in range(40)], ref.configs["tiny"].replace(name="few", acc_bytes=512)
    with pytest.raises(CapacityError, match="41 tensors do not fit the accumulators of few"):
        elementwise(few, 4, many)


@pytest.mark.parametrize("entries, tiling", [(1, {}), (45, {}), (200, {"tile": 7, "vthreads": 3})])
def test_sums_of_tensors_of_two_scales_are_requantised(ref, entries, tiling):
    cfg, rng = PRESETS["tiny"], np.random.default_rng(entries)
    x, y = (rng.integers(-128, 128, (entries, 1, 4)).astype(np.int8) for _ in range(2))
    none: dict[str, Any] = {
        "bias": np.zeros(4, np.int64),
        "zero_point": 0,
        "low": -128,
        "high": 127,
        "contract": "double",
    }
    r = layout.pack_par(cfg, **none, multiplier=1234567890, exponent=-1)
    other = dict(none, multiplier=1987654321, exponent=-17, bias=np.full(4, 99), high=80)
    q = layout.pack_par(cfg, **other)
    chains = {"x": [("shl", 19)], "y": [("add", 5), ("shl", 16), ("rescale", "r")]}
    sch = elementwise(cfg, entries, [("add", "y"), ("requant", "q")], operands=chains, dtype="int8", **tiling)
    out, stats = ref.outputs_of(sch, cfg, {"x": x, "y": y, "r": r, "q": q})
    scaled = rounding.rescale((y.astype(np.int64) + 5) << 16, 1234567890, -1)
    total = ref.wrap((x.astype(np.int64) << 19) + scaled + 99, 32)
    assert np.array_equal(out, rounding.requantise(total, 1987654321, -17, 0, -128, 80))
    assert stats.insns["LOAD.PAR"] == 2
