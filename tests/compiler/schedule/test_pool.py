"""Pooling equals numpy over the same windows."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler import build
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.pool import pool
from tilewright.compiler.tile import Tile
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import CapacityError, ProgramError, ScheduleError
from tilewright.runtime import layout


def check(ref, cfg, n, size, c, kernel, kind, epilogue=(), planes=False, **geometry):
    x = ref.values(np.random.default_rng(0), 8, (n, c, *size))
    sch = pool(
        cfg, n, size[0], size[1], c, kernel[0], kernel[1], kind=kind, epilogue=epilogue, planes=planes, **geometry
    )
    inputs = {"x": layout.pack_activations(x, cfg, block=cfg.block_out)}
    packed, stats = ref.outputs_of(sch, cfg, inputs, planes)
    outside = -128 if kind == "max" else 0
    stride, pad = geometry.get("stride", (1, 1)), geometry.get("pad", (0, 0, 0, 0))
    seen = np.stack([part for *_, part in ref.windows(x, kernel, stride, pad, (1, 1), outside)])
    acc = ref.epilogue(seen.max(axis=0) if kind == "max" else seen.sum(axis=0), epilogue, {})
    expected = acc if planes else ref.wrap(acc, cfg.out_bits)
    assert np.array_equal(layout.unpack_activations(packed, c, cfg, n=n), expected)
    return stats


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_pooling_is_exact(ref, data):
    draw = data.draw
    cfg = ref.configs[draw(st.sampled_from(["tiny", "uneven"]))]
    kernel, pad = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(0, 1)] * 4))
    size = tuple(draw(st.integers(k, k + 6)) for k in kernel)
    dims = st.sampled_from(["n", "co", "oy", "ox"])
    tile = st.builds(Tile, co=st.integers(1, 2), oy=st.integers(1, 3), ox=st.integers(1, 4), thread=dims)
    tiling = {"tile": draw(st.none() | tile), "vthreads": draw(st.integers(1, 4))}
    kind, planes = draw(st.sampled_from(["max", "sum"])), draw(st.booleans())
    geometry = {"stride": draw(st.tuples(*[st.integers(1, 2)] * 2)), "pad": pad}
    channels = draw(st.integers(1, 2 * cfg.block_out))
    try:
        check(ref, cfg, draw(st.integers(1, 3)), size, channels, kernel, kind, planes=planes, **geometry, **tiling)
    except CapacityError:
        assert tiling["tile"] is not None


def test_an_average_of_four_is_a_sum_and_a_shift(ref):
    stats = check(ref, PRESETS["vta"], 1, (8, 8), 32, (2, 2), "sum", (("shr", 2),), stride=(2, 2), vthreads=1)
    assert stats.insns["ALU.ADD"] == stats.insns["ALU.SHR"] == 1


def test_a_search_is_offered_tiles_that_fit_and_what_it_finds_is_used(ref):
    vta, cost = PRESETS["vta"], {}
    layer = layer_of(pool, vta, 1, 14, 14, 40, 3, 3, pad_value=0)
    for threads in (1, 2):
        cost |= (found := dict(layer.ranked(threads)))
        assert list(found.values()) == sorted(found.values())
        assert layer.best(threads) in found and layer.best(threads) in layer.promising(threads, 3)
        assert {tile.vthreads for tile in found} == {threads} and len(found) > 40
    for tile in (min(cost, key=lambda tile: cost[tile]), Tile(co=1, oy=4, ox=12, thread="oy", vthreads=2)):
        assert tile in cost
        stats = check(ref, vta, 1, (14, 14), 40, (3, 3), "sum", search=ref.search_for(tile))
        same = check(ref, vta, 1, (14, 14), 40, (3, 3), "sum", tile=tile)
        assert stats.insns == same.insns


def test_mistakes_are_named(ref):
    vta = ref.configs["vta"]
    with pytest.raises(ScheduleError, match="kind 'median' must be one of max, sum"):
        pool(vta, 1, 4, 4, 16, 2, 2, kind="median")
    with pytest.raises(
        ScheduleError, match=r"^pool: an input of 4x4 with pad .* is smaller than the kernel of 5x2; pad it$"
    ):
        pool(vta, 1, 4, 4, 16, 5, 2)
    with pytest.raises(ScheduleError, match="^pool: w = 0: must be at least 1"):
        pool(vta, 1, 4, 0, 16, 2, 2)
    with pytest.raises(CapacityError, match="a window of 60x60 does not fit the 2048 accumulators of vta"):
        pool(vta, 1, 60, 60, 16, 60, 60)
    with pytest.raises(ProgramError, match="extension pad_value is not in configuration vta"):
        build(pool(vta, 1, 4, 4, 16, 3, 3, pad=(1, 1, 1, 1)), vta)
