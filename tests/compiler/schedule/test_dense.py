"""Dense layers equal numpy's matrix product."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tile import OUTPUT_DIMS, Tile
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.runtime import layout


def check(ref, cfg, n, ci, co, epilogue=(), planes=False, **tiling):
    rng = np.random.default_rng(0)
    x, w = ref.values(rng, cfg.inp_bits, (n, ci)), ref.values(rng, cfg.wgt_bits, (co, ci))
    b = rng.integers(-3000, 3000, co)
    sch = dense(cfg, n, ci, co, epilogue=epilogue, planes=planes, **tiling)
    inputs = {"x": layout.pack_dense_activations(x, cfg), "w": layout.pack_dense_weights(w, cfg)}
    if epilogue:
        inputs["b"] = layout.pack_bias(b, cfg)
    packed, stats = ref.outputs_of(sch, cfg, inputs, planes)
    acc = ref.epilogue(x.astype(np.int64) @ w.astype(np.int64).T, epilogue, {"b": b})
    expected = acc if planes else ref.wrap(acc, cfg.out_bits)
    assert np.array_equal(layout.unpack_dense_activations(packed, co, n=n), expected)
    return stats


@pytest.mark.circuit
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_random_products_are_exact(ref, data):
    draw = data.draw
    cfg = ref.configs[draw(st.sampled_from(sorted(ref.configs)))]
    n, ci, co = draw(st.integers(1, 9)), draw(st.integers(1, 4 * cfg.block_in)), draw(st.integers(1, 4 * cfg.block_out))
    size, thread = st.integers(1, 4), st.sampled_from(["n", "co"])
    tile = st.builds(Tile, n=size, co=size, ci=size, thread=thread, inp_slots=size, wgt_slots=size)
    tiling = {"tile": draw(st.none() | tile), "vthreads": draw(st.integers(1, 4))}
    epilogue = draw(st.sampled_from([(), (("sub", "b"), ("mul", 3), ("shr", 2)), (("add", "b"), ("shl", 2))]))
    planes = draw(st.booleans()) and cfg.out_bits == 8
    try:
        check(ref, cfg, n, ci, co, epilogue, planes, **tiling)
    except CapacityError:
        assert tiling["tile"] is not None


def test_byte_planes_carry_the_whole_accumulator(ref):
    stats = check(ref, ref.configs["vta"], 4, 64, 32, planes=True, vthreads=1)
    assert stats.insns["STORE.OUT"] == 4 and stats.insns["ALU.SHR"] == 3 and stats.insns["GEMM"] == 2


def test_threads_go_along_dimensions_of_the_layer(ref):
    thread = OUTPUT_DIMS[2]
    with pytest.raises(ScheduleError, match=f"Tile.thread = '{thread}': must be one of n, co"):
        dense(ref.configs["vta"], 1, 16, 16, tile=Tile(thread=thread))
