"""sim/model/gemm.py: GEMM, DWGEMM and TERNARY as products of matrices, against the definition."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Mem, Op
from tilewright.sim.model import gemm
from tilewright.sim.random_programs import ODD_TWO, ROWS

UOPS = 60000  # where the tests put micro-ops


def random_program(kit, cfg, seed, modes):
    m, insns = kit.filled(cfg, seed)
    limits = (min(cfg.acc_depth, 128), min(cfg.inp_depth, 128), min(cfg.wgt_depth, 128))
    for k in range(4):
        fields, uops = kit.random_loop(m.rng, limits, kit.random_uops(m.rng))
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        mode = modes[int(m.rng.integers(len(modes)))]
        op = Op.DWGEMM if "depthwise" in cfg.extensions and m.rng.integers(2) else Op.GEMM
        insns += [kit.load_uops(address, len(uops)), {"op": op, **fields, **mode}]
    return m, insns


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_equal_one_micro_op_after_the_other(kit, agree, any_cfg, seed):
    modes = [{}, {}, {"reset": 1}]
    if "overwrite" in any_cfg.extensions:
        modes.append({"overwrite": 1})
    agree(*random_program(kit, any_cfg, seed, modes))


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize("seed", range(40))
def test_results_do_not_depend_on_where_an_instruction_is_cut(kit, agree, monkeypatch, seed, limit):
    monkeypatch.setattr(gemm, "_ELEMENTS", limit)
    agree(*random_program(kit, kit.CONFIGS["batch2"], seed, [{}, {"overwrite": 1}, {"reset": 1}]))


def gemm_on(machine, cfg, uops, *, inp, wgt, **fields):
    """The accumulators after one GEMM on scratchpads that hold `inp` and `wgt`."""
    m = machine(cfg)
    m.model.state.inp[...], m.model.state.wgt[...] = inp, wgt
    m.model.state.uop[: len(uops)] = m.isa.uop.encode(
        len(uops), **dict(zip(("dst", "src", "wgt"), np.transpose(uops)))
    )[:, 0]
    stats = m.run([{"op": Op.GEMM, "uop_end": len(uops), "iter_out": 1, "iter_in": 1, **fields}])
    return m.model.state.acc, stats


@pytest.mark.parametrize("inputs", [-128, 127])
def test_the_longest_reductions_of_the_largest_products_are_exact(machine, inputs):
    cfg = PRESETS["vta"]
    uops = [(0, k, k) for k in range(1024)]
    acc, _ = gemm_on(machine, cfg, uops, inp=inputs, wgt=-128)
    assert (acc[0] == 1024 * 16 * inputs * -128).all()
    assert not acc[1:].any()


def test_a_reduction_at_the_bound_of_float32_is_exact_whatever_the_values(machine):
    cfg = PRESETS["vta"]
    rng = np.random.default_rng(1)
    inp = rng.choice(np.array([-128, -127, 127], np.int8), (2048, 16))
    wgt = rng.choice(np.array([-128, -127, 127], np.int8), (1024 * 16, 16))
    uops = [(0, k, k) for k in range(64)]  # 64 entries of 16: 1024 products
    acc, _ = gemm_on(machine, cfg, uops, inp=inp, wgt=wgt)
    expected = np.einsum("ki,koi->o", inp[:64].astype(np.int64), wgt.reshape(1024, 16, 16)[:64].astype(np.int64))
    np.testing.assert_array_equal(acc[0], expected)
    assert gemm.exact_products(cfg) == 1024
    assert gemm.exact_products(PRESETS["tiny"].replace(inp_bits=4, wgt_bits=2)) == 1 << 20


def test_sums_wrap_at_32_bits(machine, effort):
    cfg = PRESETS["vta"]
    fields = {"iter_out": 16383, "iter_in": 16383}
    with effort() as taken:
        acc, stats = gemm_on(machine, cfg, [(5, 0, 0)], inp=-128, wgt=-128, **fields)
    print(taken)
    assert (acc[5] == np.int64(16383 * 16383 * 16 * 128 * 128).astype(np.int32)).all()
    assert stats.macs == 16383 * 16383 * 256
    assert taken.calls < 10_000 and taken.nbytes < 4 << 20  # trips that move no index are counted, not made


def test_an_instruction_with_the_most_trips_needs_little_memory(machine, effort):
    """16383 x 1000 products of distinct inputs: gathered at once they would be 1 GB."""
    cfg = PRESETS["vta"]
    rng = np.random.default_rng(0)
    inp = rng.integers(-128, 128, (2048, 16)).astype(np.int8)
    wgt = rng.integers(-128, 128, (1024 * 16, 16)).astype(np.int8)
    fields = {"iter_out": 16383, "iter_in": 1000, "src_in": 1, "dst_in": 2}
    with effort() as taken:
        acc, _ = gemm_on(machine, cfg, [(0, 7, 3)], inp=inp, wgt=wgt, **fields)
    print(taken)
    assert taken.calls < 10_000 and taken.nbytes < 100 << 20
    expected = inp[7:1007].astype(np.int64) @ wgt.reshape(1024, 16, 16)[3].astype(np.int64).T * 16383
    np.testing.assert_array_equal(acc[0:2000:2], expected.astype(np.int32))
    assert not acc[1:2000:2].any()


def test_overwriting_keeps_the_last_product_of_an_accumulator(machine):
    cfg = PRESETS["tiny"]
    inp = np.arange(64, dtype=np.int8).repeat(4).reshape(64 * 4 // 4, 4)[: cfg.inp_depth]
    inp = np.resize(inp, (cfg.inp_depth, 4))
    wgt = np.ones((cfg.wgt_depth * 4, 4), np.int8)
    acc, _ = gemm_on(machine, cfg, [(0, 1, 0), (1, 2, 0), (0, 3, 0)], inp=inp, wgt=wgt, overwrite=1)
    assert acc[:2, 0].tolist() == [12, 8]
    acc, _ = gemm_on(machine, cfg, [(0, 0, 0)], inp=inp, wgt=wgt, overwrite=1, iter_in=9, src_in=1)
    assert acc[0, 0] == 32


@pytest.mark.parametrize("limit", [1, 32, 64, 1 << 20])
def test_overwriting_irregular_micro_ops_cut_anywhere_keeps_the_last(kit, agree, monkeypatch, limit):
    """A part of the list may use one accumulator only, which the whole list does not."""
    monkeypatch.setattr(gemm, "_ELEMENTS", limit)
    m, insns = kit.filled(kit.CONFIGS["tiny"], 2)
    m.put_uops([(0, 3, 1), (0, 1, 2), (0, 4, 0), (0, 2, 2), (5, 0, 1), (5, 0, 1), (2, 2, 2), (5, 1, 0)], UOPS)
    loop = {"uop_end": 8, "iter_out": 2, "iter_in": 2, "dst_out": 3, "src_in": 1, "overwrite": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 8), {"op": Op.GEMM, **loop}])


def test_a_reset_reads_no_input_and_no_weight(kit, machine):
    """Its source indices may lie anywhere."""
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[...] = 7
    fields = {"iter_out": 100, "iter_in": 1, "dst_out": 1, "src_out": 200, "wgt_out": 100}
    m.run([{"op": Op.GEMM, "reset": 1, "uop_end": 1, **fields}])
    assert not m.model.state.acc[:100].any()
    assert (m.model.state.acc[100:] == 7).all()


def test_a_transposed_convolution_adds_overlapping_accumulators(kit, agree):
    """dst = y + k: neither loop alone shows which accumulators repeat."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 3)
    m.put_uops([(0, 0, 0)], UOPS)
    loop = {"iter_out": 5, "iter_in": 9, "dst_out": 1, "dst_in": 1, "src_in": 1, "wgt_out": 1, "uop_end": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), {"op": Op.GEMM, **loop}])


def test_kernels_follow_what_was_loaded_last(kit, agree):
    """The same instruction twice, with other micro-ops in the same place."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 4)
    m.put_uops([(0, 0, 0), (1, 1, 0)], UOPS)
    m.put_uops([(9, 2, 1), (3, 1, 1)], UOPS + 64)
    step = {"op": Op.GEMM, "uop_end": 2, "iter_out": 3, "iter_in": 1, "dst_out": 2, "wgt_out": 1}
    first, second = kit.load_uops(UOPS, 2), kit.load_uops(UOPS + 64, 2)
    agree(m, [*insns, first, step, second, step, first, step])


@pytest.mark.parametrize("short", [1, 3000, 10**6])
@pytest.mark.parametrize("seed", range(10))
def test_operands_follow_what_was_loaded_last(kit, agree, any_cfg, monkeypatch, seed, short):
    """The same instructions again and again, with other inputs or weights in a few of their entries."""
    monkeypatch.setattr(gemm, "_SHORT", short)
    monkeypatch.setattr(gemm, "_LEAST", 2)
    m, insns = kit.filled(any_cfg, seed)
    limits = (min(any_cfg.acc_depth, 128), min(any_cfg.inp_depth, 128), min(any_cfg.wgt_depth, 128))
    fields, uops = kit.random_loop(m.rng, limits, kit.random_uops(m.rng))
    m.put_uops(uops, UOPS)
    insns.append(kit.load_uops(UOPS, len(uops)))
    steps = [{"op": Op.GEMM, **fields}] * 2
    if "overwrite" in any_cfg.extensions:
        steps.append({"op": Op.GEMM, **fields, "overwrite": 1})
    for k in range(8):
        mem = (Mem.INP, Mem.WGT)[k % 2]
        load = next(f for f in insns if f.get("mem") == mem)
        first, count = m.rng.integers(load["x_size"]), m.rng.integers(1, 4)
        there = {"sram_base": first, "dram_base": load["dram_base"] + 7 + k, "x_size": count}
        insns += [steps[m.rng.integers(len(steps))], {**load, **there}] if first + count <= load["x_size"] else []
    agree(m, [*insns, *steps])


@pytest.mark.parametrize("short", [2000, 10**6])
@pytest.mark.parametrize("rows, columns", [(2, 40), (40, 2), (40, 40), (41, 3)])
def test_products_of_any_proportion_are_exact(kit, agree, monkeypatch, rows, columns, short):
    """Matrices are transposed by their proportion, and long ones are cut into equal parts of rows, if there are any."""
    monkeypatch.setattr(gemm, "_SHORT", short)
    monkeypatch.setattr(gemm, "_LEAST", 2)
    m, insns = kit.filled(kit.CONFIGS["block16"], 1)
    m.put_uops([(0, 0, 0)], UOPS)
    loop = {"iter_out": rows, "iter_in": columns, "dst_out": 1, "src_out": 1, "dst_in": rows, "wgt_in": 1, "uop_end": 1}
    step = {"op": Op.GEMM, **loop, "dst_in": rows if rows * columns <= 128 else 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), step, {**step, "src_out": 2}, step])


def test_parts_of_long_products_are_short():
    assert gemm._parts(392, 392 * 144 * 32) == 2 and gemm._parts(393, 393 * 144 * 32) == 3
    assert gemm._parts(98, 98 * 144 * 64) == 1 and gemm._parts(64, 64 * 1008 * 64) == 1


def test_a_program_that_runs_again_sees_other_micro_ops(kit, agree):
    m, insns = kit.filled(kit.CONFIGS["tiny"], 4)
    program = [*insns, kit.load_uops(UOPS, 2), {"op": Op.GEMM, "uop_end": 2, "iter_out": 1, "iter_in": 1}]
    for uops in ([(0, 0, 0), (1, 1, 0)], [(9, 2, 1), (3, 1, 1)], [(0, 0, 0), (1, 1, 0)]):
        m.put_uops(uops, UOPS)
        m.run(program)
        after = m.model.state.acc.copy()
        m.model.state.acc[...] = 0
        agree(m, program)
        np.testing.assert_array_equal(m.model.state.acc, after)
        m.model.state.acc[...] = 0


def test_empty_loops_do_nothing(kit, agree):
    m, insns = kit.filled(kit.CONFIGS["tiny"], 5)
    for fields in (
        {"iter_out": 0, "iter_in": 4, "uop_end": 1},
        {"iter_out": 3, "iter_in": 3, "uop_bgn": 2, "uop_end": 2},
    ):
        stats = agree(m, [*insns, {"op": Op.GEMM, **fields, "dst_out": 100, "dst_in": 100}])
        assert (stats.uops, stats.macs) == (0, 0)


def depthwise_on(machine, cfg, uops, **fields):
    """The accumulators after one DWGEMM on random scratchpads, and those of loops in numpy."""
    m = machine(cfg)
    state = m.model.state
    state.inp[...] = m.rng.integers(-128, 128, state.inp.shape)
    state.wgt[...] = m.rng.integers(-128, 128, state.wgt.shape)
    state.uop[: len(uops)] = m.isa.uop.encode(len(uops), **dict(zip(("dst", "src", "wgt"), np.transpose(uops))))[:, 0]
    fields = {"uop_end": len(uops), "iter_out": 1, "iter_in": 1, **fields}
    expected = np.zeros((cfg.acc_depth, cfg.batch, cfg.block_out), np.int64)
    inp = state.inp.reshape(cfg.inp_depth, cfg.batch, cfg.block_in).astype(np.int64)
    rows = state.wgt.reshape(-1).reshape(cfg.wgt_depth * cfg.block_in, cfg.block_out).astype(np.int64)
    for i, j in np.ndindex(fields["iter_out"], fields["iter_in"]):
        for uop in uops:
            d, s, w = (
                u + i * fields.get(f"{name}_out", 0) + j * fields.get(f"{name}_in", 0)
                for u, name in zip(uop, ("dst", "src", "wgt"))
            )
            expected[d] += inp[s] * rows[w]
    stats = m.run([{"op": Op.DWGEMM, **fields}])
    return state.acc.reshape(expected.shape), expected, stats


@pytest.mark.parametrize("name", ["tiny", "block16", "batch2", "single"])
def test_a_depthwise_convolution_equals_numpy(kit, machine, name):
    """3x3 over 7x7 inputs, one row of outputs per outer trip; the last trip reads the last rows of the weights."""
    cfg = kit.CONFIGS[name].replace(acc_bytes=1 << 12, inp_bytes=1 << 10, wgt_bytes=1 << 12, extensions=["depthwise"])
    last = cfg.wgt_depth * cfg.block_in - 1
    taps = [(0, 7 * y + x, 3 * y + x) for y in range(3) for x in range(3)]
    step = min((last - 8) // 4, cfg.wgt_depth - 1)
    taps = [(d, s, w + min(last - 8 - 4 * step, cfg.wgt_depth - 9)) for d, s, w in taps]
    loop = {"iter_out": 5, "dst_out": 5, "src_out": 7, "wgt_out": step, "iter_in": 5, "dst_in": 1, "src_in": 1}
    acc, expected, stats = depthwise_on(machine, cfg, taps, **loop)
    np.testing.assert_array_equal(acc, expected)
    assert acc.any()
    assert (stats.macs, stats.uops) == (225 * cfg.batch * cfg.block_out, 225)


def test_depthwise_sums_wrap_and_the_largest_products_are_exact(machine):
    cfg = PRESETS["pynq_z1"]
    m = machine(cfg)
    m.model.state.inp[...], m.model.state.wgt[...] = -128, -128
    m.run([{"op": Op.DWGEMM, "uop_end": 1, "iter_out": 16383, "iter_in": 1000, "src_in": 2, "wgt_in": 3}])
    assert (m.model.state.acc[0] == np.int64(16383 * 1000 * 128 * 128).astype(np.int32)).all()
    assert not m.model.state.acc[1:].any()


def test_taps_beyond_a_memory_are_an_error(machine):
    """Of 128 inputs and 128 groups of 4 rows."""
    m = machine(ROWS)
    loop = {"op": Op.DWGEMM, "extra_taps": 3, "uop_end": 1, "iter_out": 1, "iter_in": 2}
    m.run([{**loop, "src_in": 124, "wgt_in": 63}, {**loop, "iter_out": 2, "wgt_in": 63, "wgt_out": 63}])
    with pytest.raises(AccessError, match=r"INP entries 0\.\.128 are outside 0\.\.127$"):
        m.run([{**loop, "src_in": 125}])
    with pytest.raises(AccessError, match=r"WGT rows 0\.\.515 are outside 0\.\.511$"):
        m.run([{**loop, "iter_in": 5, "wgt_in": 32}])


def test_rows_beyond_the_weights_are_an_error(kit, machine):
    """128 entries of 4 rows; a micro-op reaches 128 rows, loops the others."""
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.uop[0] = m.isa.uop.encode(wgt=127)[0, 0]
    loop = {"op": Op.DWGEMM, "uop_end": 1, "iter_out": 4, "iter_in": 1, "wgt_out": 127}
    m.run([{**loop, "iter_in": 4, "wgt_in": 1}])
    with pytest.raises(AccessError, match=r"WGT rows 127\.\.512 are outside 0\.\.511$"):
        m.run([{**loop, "iter_in": 5, "wgt_in": 1}])
    m.run([{**loop, "iter_in": 5, "wgt_in": 1, "reset": 1}])


def test_scratchpads_hold_numbers_of_their_width(kit, agree):
    """Sums of 4-bit numbers are exact for far longer reductions than a cut at 1024 products."""
    cfg = kit.CONFIGS["int4"].replace(
        name="deep", wgt_bytes=1 << 13, inp_bytes=1 << 12, block_in=16, uop_bytes=1 << 12, extensions=()
    )
    m, insns = kit.filled(cfg, 6)
    uops = [(1, k % cfg.inp_depth, k % cfg.wgt_depth) for k in range(1000)]
    m.put_uops(uops, UOPS)
    loop = {"op": Op.GEMM, "iter_out": 1, "iter_in": 1, "uop_end": 1000}
    agree(m, [*insns, kit.load_uops(UOPS, 1000), loop])
    assert Mem.WGT.name == "WGT"


TWO = PRESETS["tiny_two"]


CONFIGS = [TWO, ODD_TWO, TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=1 << 9)]


MODES = [{}, {}, {"reset": 1}, {"overwrite": 1}]


def random_ternary(kit, cfg, seed):
    """Four instructions, of either unit."""
    m, insns = kit.filled(cfg, seed)
    for k in range(4):
        mode, both = MODES[int(m.rng.integers(len(MODES)))], m.rng.integers(4) > 0
        wgt, most = (cfg.twgt_depth, cfg.plane_depth) if both else (cfg.wgt_depth, cfg.acc_depth)
        uops = kit.random_uops(m.rng, 8) % (most, cfg.inp_depth, wgt)
        fields, uops = kit.random_loop(m.rng, (most, cfg.inp_depth, wgt), uops)
        uops[:, 0] += cfg.bank_depth * int(m.rng.integers(4)) if both else 0
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        op, mem = (Op.TERNARY, Mem.TUOP) if both else (Op.GEMM, Mem.UOP)
        insns += [kit.load_uops(address, len(uops), mem), {"op": op, **fields, **mode}]
    return m, insns


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("seed", range(20))
def test_random_loops_equal_one_ternary_micro_op_after_the_other(kit, agree, cfg, seed):
    agree(*random_ternary(kit, cfg, seed))


@pytest.mark.parametrize("seed", range(10))
def test_results_do_not_depend_on_where_a_ternary_instruction_is_cut(kit, agree, monkeypatch, seed):
    monkeypatch.setattr(gemm, "_ELEMENTS", 7)
    agree(*random_ternary(kit, TWO, seed))


def test_weights_are_two_bits_and_padded_with_zeros(machine, agree):
    m = machine(TWO)
    m.dram[4096:4112] = np.arange(16) * 17
    load = {"op": Op.LOAD, "mem": Mem.TWGT.id, "sram_base": 3, "dram_base": 256, "y_size": 1, "x_size": 1}
    agree(m, [{**load, "x_pad_0": 1, "y_pad_1": 1}])
    twgt = m.scratchpads()["twgt"]
    assert not twgt[[3, 5, 6]].any()
    assert twgt[4, :4].tolist() == [[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [-1, 0, -1, 0]]


def test_micro_ops_of_one_unit_are_not_those_of_the_other(machine, agree):
    m = machine(TWO)
    m.put_uops([(5, 1, 2)], UOPS)
    agree(m, [{"op": Op.LOAD, "mem": Mem.TUOP.id, "sram_base": 9, "dram_base": UOPS // 4, "x_size": 1}])
    assert m.model.state.tuop[9] and not m.model.state.uop.any()


WRONG = [
    ({"dst_in": 8}, "ACC entry 8 is not in the first plane of a bank, 8 of every 32 entries"),
    ({"dst_in": 100}, "ACC entries 0..200 are outside 0..127"),
    ({"src_in": 128}, "INP entries 0..256 are outside 0..255"),
    ({"wgt_in": 64}, "TWGT entries 0..128 are outside 0..127"),
    ({"uop_end": 257}, "micro-ops 0..256 are outside 0..255"),
    ({"reset": 1, "dst_in": 31}, "ACC entry 31 is not in the first plane"),
]


@pytest.mark.parametrize("fields, text", WRONG, ids=[text[:30] for _, text in WRONG])
def test_indices_outside_are_named(machine, fields, text):
    m = machine(TWO)
    with pytest.raises(AccessError, match=text.replace("(", r"\(")):
        m.run([{"op": Op.TERNARY, "uop_end": 1, "iter_out": 1, "iter_in": 3, **fields}])
    assert not m.model.state.acc.any()


def test_the_largest_sums_are_exact(machine):
    """All inputs -128, all weights -1: 256 inputs of 4 elements, 1000 times."""
    m = machine(TWO)
    m.model.state.inp[...], m.model.state.twgt[...] = -128, -1
    m.run([{"op": Op.TERNARY, "uop_end": 1, "iter_out": 1000, "iter_in": 256, "src_in": 1}])
    acc = m.model.state.acc
    assert (acc[[0, 8, 16, 24]] == 128 * 4 * 256 * 1000).all() and np.count_nonzero(acc) == 16
