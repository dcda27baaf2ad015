"""GEMM, DWGEMM, TERNARY and ALU as a few array operations: against the definition and NumPy, and by their effort."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.conftest import CONFIGS, Machine, filled, load_uops, random_loop, random_uops, wrap
from tests.sim.wrong import alu as alu_insn
from tests.sim.wrong import loop
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import AluOp, Mem, Op
from tilewright.sim.model import alu, gemm
from tilewright.sim.model.loops import DST, SRC, WGT, Axis, Nest, distinct, factor, grid, trips, uses
from tilewright.sim.random_programs import ODD_TWO, WIDE

UOPS = 60000  # address of the first micro-ops
BASE = [op for op in AluOp if op < AluOp.RESCALE]
VTA, TINY, TWO = PRESETS["vta"], PRESETS["tiny"], PRESETS["tiny_two"]
UNITS = [TWO, ODD_TWO, TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=1 << 9)]


def random_alu(cfg: Config, seed: int):
    """A machine and four ALU instructions behind their loads."""
    m, insns = filled(cfg, seed)
    limits = (min(cfg.acc_depth, 128), min(cfg.acc_depth, cfg.inp_depth, 128), 9)
    for k in range(4):
        fields, uops = random_loop(m.rng, limits, random_uops(m.rng) * [1, 1, 0])
        fields = {key: v for key, v in fields.items() if not key.startswith("wgt")}
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        imm = {"use_imm": 1, "imm": int(m.rng.choice([-32768, -33, -17, -1, 0, 1, 3, 15, 31, 32, 32767]))}
        fields |= imm if m.rng.integers(2) else {"use_imm": 0}
        op = BASE[m.rng.integers(len(BASE))]
        if "rescale" in cfg.extensions and not m.rng.integers(3):
            op, fields = AluOp.RESCALE, fields | {"use_imm": 1, "imm": int(m.rng.integers(cfg.par_entries))}
        insns += [load_uops(address, len(uops)), {"op": Op.ALU, "alu_op": op, **fields}]
    return m, insns


def random_products(cfg: Config, seed: int):
    """A machine and four instructions that multiply, behind their loads: of each unit and with each mode."""
    m, insns = filled(cfg, seed)
    modes = [{}, {}, {"reset": 1}, *([{"overwrite": 1}] if "overwrite" in cfg.extensions else [])]
    for k in range(4):
        unit = "ternary" in cfg.units and m.rng.integers(4) > 0
        acc, wgt = (cfg.plane_depth, cfg.twgt_depth) if unit else (min(cfg.acc_depth, 128), min(cfg.wgt_depth, 128))
        limits = (acc, min(cfg.inp_depth, 128), wgt)
        fields, uops = random_loop(m.rng, limits, random_uops(m.rng, 8 if unit else 24) % limits)
        uops[:, 0] += cfg.bank_depth * int(m.rng.integers(4)) if unit else 0
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        op = Op.DWGEMM if "depthwise" in cfg.extensions and m.rng.integers(2) else Op.GEMM
        op, mem = (Op.TERNARY, Mem.TUOP) if unit else (op, Mem.UOP)
        insns += [load_uops(address, len(uops), mem), {"op": op, **fields, **modes[int(m.rng.integers(len(modes)))]}]
    return m, insns


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("cfg", [*CONFIGS.values(), *UNITS], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("make", [random_alu, random_products])
def test_random_loops_equal_one_micro_op_after_the_other(agree, make, cfg, seed):
    agree(*make(cfg, seed))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(
    "make, cfg, module, limit",
    [
        (random_alu, TINY, (alu, "_ROWS"), 5),
        *((random_products, CONFIGS["batch2"], (gemm, "_ELEMENTS"), limit) for limit in (1, 7, 100)),
        (random_products, TWO, (gemm, "_ELEMENTS"), 7),
    ],
)
def test_results_do_not_depend_on_where_an_instruction_is_cut(agree, monkeypatch, make, cfg, module, limit, seed):
    monkeypatch.setattr(*module, limit)
    agree(*make(cfg, 1000 + seed))


def gemm_insn(**fields: int) -> dict:
    return loop(Op.GEMM, **fields)


_IRREGULAR = [(0, 3, 1), (0, 1, 2), (0, 4, 0), (0, 2, 2), (5, 0, 1), (5, 0, 1), (2, 2, 2), (5, 1, 0)]
_SWEEP = [(i, i + 1, 0) for i in range(30)]
_WINDOW = [(y * 2 + x, 4 + y * 20 + x * 2, 0) for y in range(2) for x in range(2)]
# micro-ops, instructions on `tiny` whose accumulators depend on each other
SPECIAL = {
    **{
        f"{op.name} reads results again after {distance}": (
            [(distance, 0, 0)],
            [loop(Op.ALU, alu_op=op, iter_in=60, dst_in=1, src_in=1)],
        )
        for op in BASE
        for distance in (1, 2, 3, 7)
    },
    **{
        f"{op.name} of {name}": (uops, [loop(Op.ALU, alu_op=op, uop_end=len(uops), **fields)])
        for op in BASE
        for name, uops, fields in (
            ("operands overwritten later, forwards and backwards", _SWEEP + _SWEEP[::-1], {"iter_out": 2}),
            ("pooling windows", _WINDOW, {"iter_out": 3, "iter_in": 3, "src_out": 10, "src_in": 1}),
            ("accumulators with themselves", [(3, 3, 0)], {"iter_out": 2, "iter_in": 10, "dst_in": 1, "src_in": 1}),
        )
    },
    "RESCALE of accumulators named once to four times": (
        [(0, 0, 0), (3, 0, 0)],
        [alu_insn(AluOp.RESCALE, imm=k, uop_end=2, iter_out=5, iter_in=2, dst_out=1) for k in range(8)],
    ),
    "overwriting irregular micro-ops": (
        _IRREGULAR,
        [gemm_insn(uop_end=8, iter_out=2, iter_in=2, dst_out=3, src_in=1, overwrite=1)],
    ),
    "a transposed convolution": (
        [(0, 0, 0)],
        [gemm_insn(iter_out=5, iter_in=9, dst_out=1, dst_in=1, src_in=1, wgt_out=1)],
    ),
    "an irregular kernel for each of two blocks": (
        [(8 * block, 18 * y + x, 9 * block + 3 * y + x) for block in range(2) for y in range(3) for x in range(3)][1:],
        [gemm_insn(uop_end=17, iter_in=3, src_in=1, dst_in=1)],
    ),
}


@pytest.mark.parametrize("limit", [32, 1 << 20])
@pytest.mark.parametrize("uops, steps", SPECIAL.values(), ids=SPECIAL)
def test_accumulators_that_depend_on_each_other(agree, monkeypatch, uops, steps, limit):
    monkeypatch.setattr(gemm, "_ELEMENTS", limit)
    m, insns = filled(TINY, 2)
    m.put_uops(uops, UOPS)
    agree(m, [*insns, load_uops(UOPS, len(uops)), *steps])


# -- what was loaded last


def test_micro_ops_are_those_loaded_last(agree):
    """The same instruction with other micro-ops in the same place: in one program, and when it runs again."""
    m, insns = filled(TINY, 4)
    m.put_uops([(0, 0, 0), (1, 1, 0)], UOPS)
    m.put_uops([(9, 2, 1), (3, 1, 1)], UOPS + 64)
    step = gemm_insn(uop_end=2, iter_out=3, dst_out=2, wgt_out=1)
    first, second = load_uops(UOPS, 2), load_uops(UOPS + 64, 2)
    agree(m, [*insns, first, step, second, step, first, step])
    for uops in ([(0, 0, 0), (1, 1, 0)], [(9, 2, 1), (3, 1, 1)], [(0, 0, 0), (1, 1, 0)]):
        m.put_uops(uops, UOPS)
        m.model.state.acc[...] = 0
        m.run([*insns, first, step])
        after = m.model.state.acc.copy()
        m.model.state.acc[...] = 0
        agree(m, [*insns, first, step])
        np.testing.assert_array_equal(m.model.state.acc, after)


@pytest.mark.parametrize("short", [1, 3000, 10**6])
@pytest.mark.parametrize("seed", range(10))
def test_operands_are_those_loaded_last(agree, any_cfg, monkeypatch, seed, short):
    """The same instructions again and again, with other inputs or weights in a few of their entries."""
    monkeypatch.setattr(gemm, "_SHORT", short)
    monkeypatch.setattr(gemm, "_LEAST", 2)
    m, insns = filled(any_cfg, seed)
    limits = (min(any_cfg.acc_depth, 128), min(any_cfg.inp_depth, 128), min(any_cfg.wgt_depth, 128))
    fields, uops = random_loop(m.rng, limits, random_uops(m.rng))
    m.put_uops(uops, UOPS)
    insns.append(load_uops(UOPS, len(uops)))
    steps = [{"op": Op.GEMM, **fields}] * 2
    if "overwrite" in any_cfg.extensions:
        steps.append({"op": Op.GEMM, **fields, "overwrite": 1})
    for k in range(8):
        moved = next(f for f in insns if f.get("mem") == (Mem.INP, Mem.WGT)[k % 2])
        first, count = m.rng.integers(moved["x_size"]), m.rng.integers(1, 4)
        place = {"sram_base": first, "dram_base": moved["dram_base"] + 7 + k, "x_size": count}
        insns += [steps[m.rng.integers(len(steps))], {**moved, **place}] if first + count <= moved["x_size"] else []
    agree(m, [*insns, *steps])


def test_micro_ops_of_one_unit_are_not_those_of_the_other(agree):
    m = Machine(TWO)
    m.put_uops([(5, 1, 2)], UOPS)
    agree(m, [{"op": Op.LOAD, "mem": Mem.TUOP.id, "sram_base": 9, "dram_base": UOPS // 4, "x_size": 1}])
    assert m.model.state.tuop[9] and not m.model.state.uop.any()


# -- products


def gemm_on(cfg, uops, *, inp, wgt, times=1, **fields):
    """The accumulators after the same GEMM, so many times, on scratchpads that hold `inp` and `wgt`; its statistics."""
    m = Machine(cfg)
    m.model.state.inp[...], m.model.state.wgt[...] = inp, wgt
    words = m.isa.uop.encode(len(uops), **dict(zip(("dst", "src", "wgt"), np.transpose(uops))))
    m.model.state.uop[: len(uops)] = words[:, 0]
    stats = m.run([gemm_insn(uop_end=len(uops), **fields)] * times)
    return m.model.state.acc, stats


@pytest.mark.parametrize("inputs", [-128, 127])
def test_the_longest_reductions_of_the_largest_products_are_exact(inputs):
    acc, _ = gemm_on(VTA, [(0, k, k) for k in range(1024)], inp=inputs, wgt=-128)
    assert (acc[0] == 1024 * 16 * inputs * -128).all() and not acc[1:].any()


@pytest.mark.parametrize("entries, times", [(64, 1), (64, 2), (32, 5), (16, 9), (4, 33)])
def test_reductions_at_the_bound_of_float32_are_exact(entries, times):
    """64 entries of 16 products are what float32 adds exactly: in one instruction, and in several that are summed."""
    rng = np.random.default_rng(1)
    inp = rng.choice(np.array([125, 126, 127], np.int8), (2048, 16))
    wgt = rng.choice(np.array([-127, -126, -125], np.int8), (1024 * 16, 16))
    acc, _ = gemm_on(VTA, [(0, k, k) for k in range(entries)], inp=inp, wgt=wgt, times=times)
    products = np.einsum("ki,koi->ko", inp[:64].astype(np.int64), wgt.reshape(1024, 16, 16)[:64].astype(np.int64))
    np.testing.assert_array_equal(acc[0], times * products[:entries].sum(axis=0))
    assert gemm.exact_products(VTA) == 1024
    assert gemm.exact_products(TINY.replace(inp_bits=4, wgt_bits=2)) == 1 << 20


def test_sums_wrap_at_32_bits(effort):
    with effort() as taken:
        acc, stats = gemm_on(VTA, [(5, 0, 0)], inp=-128, wgt=-128, iter_out=16383, iter_in=16383)
    assert (acc[5] == np.int64(16383 * 16383 * 16 * 128 * 128).astype(np.int32)).all()
    assert stats.macs == 16383 * 16383 * 256
    assert taken.calls < 10_000 and taken.nbytes < 4 << 20, taken  # trips that move no index are counted, not made


def test_an_instruction_with_the_most_trips_needs_little_memory(effort):
    """16383 x 1000 products of distinct inputs: gathered at once they would be 1 GB."""
    rng = np.random.default_rng(0)
    inp = rng.integers(-128, 128, (2048, 16)).astype(np.int8)
    wgt = rng.integers(-128, 128, (1024 * 16, 16)).astype(np.int8)
    with effort() as taken:
        acc, _ = gemm_on(VTA, [(0, 7, 3)], inp=inp, wgt=wgt, iter_out=16383, iter_in=1000, src_in=1, dst_in=2)
    assert taken.calls < 10_000 and taken.nbytes < 100 << 20, taken
    expected = inp[7:1007].astype(np.int64) @ wgt.reshape(1024, 16, 16)[3].astype(np.int64).T * 16383
    np.testing.assert_array_equal(acc[0:2000:2], expected.astype(np.int32))
    assert not acc[1:2000:2].any()


def test_overwriting_keeps_the_last_product_of_an_accumulator():
    inp, wgt = np.resize(np.arange(64).repeat(4), (TINY.inp_depth, 4)), np.ones((TINY.wgt_depth * 4, 4), np.int8)
    acc, _ = gemm_on(TINY, [(0, 1, 0), (1, 2, 0), (0, 3, 0)], inp=inp, wgt=wgt, overwrite=1)
    assert acc[:2, 0].tolist() == [12, 8]
    acc, _ = gemm_on(TINY, [(0, 0, 0)], inp=inp, wgt=wgt, overwrite=1, iter_in=9, src_in=1)
    assert acc[0, 0] == 32


@pytest.mark.parametrize("short", [2000, 10**6])
@pytest.mark.parametrize("rows, columns", [(2, 40), (40, 2), (40, 40), (41, 3)])
def test_products_of_any_proportion_are_exact(agree, monkeypatch, rows, columns, short):
    """Matrices are transposed by their proportion, and long ones are cut into equal parts of rows, if there are any."""
    monkeypatch.setattr(gemm, "_SHORT", short)
    monkeypatch.setattr(gemm, "_LEAST", 2)
    m, insns = filled(CONFIGS["block16"], 1)
    m.put_uops([(0, 0, 0)], UOPS)
    step = gemm_insn(iter_out=rows, iter_in=columns, dst_out=1, src_out=1, wgt_in=1)
    step["dst_in"] = rows if rows * columns <= 128 else 1
    agree(m, [*insns, load_uops(UOPS, 1), step, {**step, "src_out": 2}, step])


def test_parts_of_long_products_are_short():
    assert gemm._parts(392, 392 * 144 * 32) == 2 and gemm._parts(393, 393 * 144 * 32) == 3
    assert gemm._parts(98, 98 * 144 * 64) == 1 and gemm._parts(64, 64 * 1008 * 64) == 1


@pytest.mark.parametrize("name", ["tiny", "block16", "batch2", "single"])
def test_a_depthwise_convolution_equals_numpy(name):
    """3x3 over 7x7 inputs, one row of outputs per outer trip; the last trip reads the last rows of the weights."""
    cfg = CONFIGS[name].replace(acc_bytes=1 << 12, inp_bytes=1 << 10, wgt_bytes=1 << 12, extensions=["depthwise"])
    m, last = Machine(cfg), cfg.wgt_depth * cfg.block_in - 1
    state, step = m.model.state, min((last - 8) // 4, cfg.wgt_depth - 1)
    first = min(last - 8 - 4 * step, cfg.wgt_depth - 9)
    taps = [(0, 7 * y + x, first + 3 * y + x) for y in range(3) for x in range(3)]
    state.inp[...] = m.rng.integers(-128, 128, state.inp.shape)
    state.wgt[...] = m.rng.integers(-128, 128, state.wgt.shape)
    state.uop[:9] = m.isa.uop.encode(9, **dict(zip(("dst", "src", "wgt"), np.transpose(taps))))[:, 0]
    inp = state.inp.reshape(cfg.inp_depth, cfg.batch, cfg.block_in).astype(np.int64)
    rows = state.wgt.reshape(-1, cfg.block_out).astype(np.int64)
    expected = np.zeros((cfg.acc_depth, cfg.batch, cfg.block_out), np.int64)
    for y, x in np.ndindex(5, 5):
        expected[5 * y + x] = sum(inp[s + 7 * y + x] * rows[w + y * step] for _, s, w in taps)
    steps = {"iter_out": 5, "dst_out": 5, "src_out": 7, "wgt_out": step, "iter_in": 5, "dst_in": 1, "src_in": 1}
    stats = m.run([loop(Op.DWGEMM, uop_end=9, **steps)])
    np.testing.assert_array_equal(state.acc.reshape(expected.shape), expected)
    assert (stats.macs, stats.uops) == (225 * cfg.batch * cfg.block_out, 225)


def test_depthwise_sums_wrap_and_the_largest_products_are_exact():
    m = Machine(PRESETS["pynq_z1"])
    m.model.state.inp[...], m.model.state.wgt[...] = -128, -128
    m.run([loop(Op.DWGEMM, iter_out=16383, iter_in=1000, src_in=2, wgt_in=3)])
    assert (m.model.state.acc[0] == np.int64(16383 * 1000 * 128 * 128).astype(np.int32)).all()
    assert not m.model.state.acc[1:].any()


def test_the_largest_ternary_sums_are_exact():
    """All inputs -128, all weights -1: 256 inputs of 4 elements, 1000 times."""
    m = Machine(TWO)
    m.model.state.inp[...], m.model.state.twgt[...] = -128, -1
    m.run([loop(Op.TERNARY, iter_out=1000, iter_in=256, src_in=1)])
    acc = m.model.state.acc
    assert (acc[[0, 8, 16, 24]] == 128 * 4 * 256 * 1000).all() and np.count_nonzero(acc) == 16


def test_sums_of_four_bit_numbers_are_longer(agree):
    cfg = CONFIGS["int4"].replace(
        name="deep", wgt_bytes=1 << 13, inp_bytes=1 << 12, block_in=16, uop_bytes=1 << 12, extensions=()
    )
    m, insns = filled(cfg, 6)
    m.put_uops([(1, k % cfg.inp_depth, k % cfg.wgt_depth) for k in range(1000)], UOPS)
    agree(m, [*insns, load_uops(UOPS, 1000), gemm_insn(uop_end=1000)])


# -- the ALU

# accumulators, multiplier, exponent, mode, result; scale 1/2 is multiplier 2**30, exponent 0
RESCALED = [
    ([-3, -1, 1, 3], 1 << 30, 0, 0, [-1, 0, 1, 2]),
    ([-6, -2, 2, 6], 1 << 30, -1, 0, [-2, -1, 1, 2]),
    ([-6, -2, 2, 6], 1 << 30, -1, 1, [-1, 0, 1, 2]),
    ([1 << 30, -(1 << 31), 5, -7], 0, 3, 0, [0, 0, 0, 0]),
    ([3, -3, 1 << 20, -1], (1 << 31) - 1, 31, 1, [6442450941, -6442450941, 0x7FFFFFFF << 20, -0x7FFFFFFF]),  # wraps
    ([1, 2, 3, -1], (1 << 31) - 1, 31, 0, [-0x7FFFFFFF, 0, -0x7FFFFFFF, -0x7FFFFFFF]),  # the shift wraps
]


@pytest.mark.parametrize("start, multiplier, exponent, mode, result", RESCALED)
def test_rescaling_wraps_at_32_bits(start, multiplier, exponent, mode, result):
    m = Machine(TINY)
    m.model.state.acc[5] = start
    for name, value in (("multiplier", multiplier), ("exponent", exponent), ("mode", mode), ("bias", 99), ("low", 1)):
        m.model.state.par[name][3] = value
    m.model.state.uop[0] = m.isa.uop.encode(dst=5)[0, 0]
    m.run([alu_insn(AluOp.RESCALE, imm=3)])
    np.testing.assert_array_equal(m.model.state.acc[5], wrap(np.array(result)))


# value, amount, value >> amount with saturating amounts
SHIFTS = [
    (-5, 0, -5), (-5, 1, -3), (5, 1, 2), (-5, 31, -1), (5, 31, 0), (-5, 32, -1), (5, 2**31 - 1, 0),
    (-5, -1, -10), (3, -31, -(1 << 31)), (3, -32, 0), (-1, -(2**31), 0), (0x40000000, -1, -(1 << 31)),
]  # fmt: skip


@pytest.mark.parametrize("value, amount, result", SHIFTS)
def test_shift_amounts_saturate(value, amount, result):
    values = np.array([value], np.int32)
    assert alu.shift_right(values, np.array([amount], np.int32)).tolist() == [result]
    assert alu.shift_right(values, amount).dtype == np.int32


@pytest.mark.parametrize("op, imm, start, result", [
    (AluOp.ADD, 3, 1, 1 + 3 * 16383 * 16383), (AluOp.MUL, 3, 5, 5 * pow(3, 16383 * 16383, 1 << 32)),
    (AluOp.MAX, 9, 1, 9), (AluOp.MIN, -9, 1, -9), (AluOp.SHR, 1, -77, -1), (AluOp.SHR, -1, 77, 0),
])  # fmt: skip
def test_the_most_trips_on_one_accumulator_cost_nothing(effort, op, imm, start, result):
    m = Machine(TINY)
    m.model.state.acc[...] = start
    with effort() as taken:
        stats = m.run([alu_insn(op, imm=imm, iter_out=16383, iter_in=16383)])
    assert taken.calls < 10_000 and taken.nbytes < 1 << 20, taken
    assert stats.uops == 16383 * 16383
    assert (m.model.state.acc[0] == wrap(result % (1 << 32))).all()
    assert (m.model.state.acc[1:] == start).all()


def test_a_long_reduction_is_few_operations(effort):
    """All other accumulators summed 16383 times into the first."""
    m = Machine(VTA)
    m.model.state.acc[...] = np.arange(2048)[:, None]
    m.model.state.uop[0] = m.isa.uop.encode(dst=0, src=1)[0, 0]
    with effort() as taken:
        m.run([loop(Op.ALU, alu_op=AluOp.ADD, iter_out=16383, iter_in=2047, src_in=1)])
    assert taken.calls < 10_000 and taken.nbytes < 1 << 20, taken
    assert (m.model.state.acc[0] == wrap(16383 * sum(range(2048)))).all()


@pytest.mark.parametrize("imm, reduced", [(0, np.add), (1, np.maximum)])
def test_a_reduction_covers_the_channels_of_each_row(imm, reduced):
    """A batch of 4: each row by itself; sums wrap, and a sum of sums is one of equal values."""
    m = Machine(WIDE)
    acc = m.model.state.acc
    acc[...] = m.rng.integers(-(1 << 31), 1 << 31, acc.shape)
    wanted = acc.astype(np.int64).reshape(-1, 4, 4)
    m.model.state.uop[:2] = [m.isa.uop.encode(dst=d)[0, 0] for d in (0, 2)]
    m.run([alu_insn(AluOp.REDUCE, imm=imm, uop_end=2, iter_out=3, dst_out=1)])
    for entry in (0, 2, 1, 3, 2, 4):
        wanted[entry] = wrap(reduced.reduce(wanted[entry], axis=1, keepdims=True))
    np.testing.assert_array_equal(acc.reshape(-1, 4, 4), wanted)


def test_a_table_is_looked_up_as_often_as_it_is_named():
    """Values beyond int8 take the ends; what a table gives is looked up again."""
    m = Machine(WIDE)
    m.model.state.tables[1] = np.arange(255, -1, -1) - 130
    acc = m.model.state.acc
    acc[:2] = [[-128, -5, 0, 127] * 4, [-(1 << 31), -129, 128, (1 << 31) - 1] * 4]
    m.run([alu_insn(AluOp.LOOKUP, imm=1, iter_in=2, dst_in=1)])
    assert acc[:2].tolist() == [[125, 2, -3, -130] * 4, [125, 125, -130, -130] * 4]
    m.run([alu_insn(AluOp.LOOKUP, imm=1, iter_in=2)])  # 125 -> -128 -> 125, -130 -> 125 -> -128
    assert acc[0].tolist() == [125, 2, -3, -128] * 4


# -- loops that a list of micro-ops was unrolled from

LOOPS = st.lists(st.tuples(st.integers(1, 5), st.tuples(*[st.integers(-3, 4)] * 3)), max_size=4)
ROWS = st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=12)


def visited(nest: Nest) -> np.ndarray:
    """Every triple in order, int64 (n, 3)."""
    return np.stack([(grid(nest.axes, c) + nest.base[c]).reshape(-1) for c in (DST, SRC, WGT)], axis=1)


def unrolled(axes, base=(0, 0, 0)) -> np.ndarray:
    rows = np.array([base])
    for n, step in reversed(axes):
        rows = (np.arange(n)[:, None, None] * np.array(step) + rows).reshape(-1, 3)
    return rows


@given(LOOPS)
def test_unrolled_loops_are_found_again(axes):
    rows = unrolled(axes, (20, 30, 40))
    nest = factor(rows)
    np.testing.assert_array_equal(visited(nest), rows)
    assert not any(axis.table for axis in nest.axes)
    assert len(nest.axes) <= sum(n > 1 for n, _ in axes)


def test_regular_kernels_are_few_loops():
    """A convolution over ky, kx, ci and co of a padded tile 16 wide; a kernel without its first position, twice."""
    steps = [(4, (196, 0, 36)), (4, (0, 256, 9)), (3, (0, 16, 3)), (3, (0, 1, 1))]
    assert factor(unrolled(steps)) == Nest((0, 0, 0), tuple(Axis(n, step) for n, step in steps))
    positions = [(18 * y + x, 3 * y + x) for y in range(3) for x in range(3)][1:]
    nest = factor(np.array([[8 * k, src, wgt + 36 * k] for k in range(2) for src, wgt in positions]))
    assert [(axis.n, bool(axis.table)) for axis in nest.axes] == [(2, False), (8, True)]
    assert factor(unrolled([(3, (8, 4, 0)), (4, (2, 1, 0))])).within([(5, (24, 12, 0))]).axes == (Axis(60, (2, 1, 0)),)


@given(ROWS, LOOPS, st.integers(1, 9), st.booleans())
def test_any_nest_has_exact_limits_and_uses_and_can_be_cut(rows, outer, most, ordered):
    nest = factor(np.array(rows)).within(outer)
    expected = visited(nest)
    for column in (DST, SRC, WGT):
        low = expected[:, column].min()
        assert nest.limits(column) == (low, expected[:, column].max())
        np.testing.assert_array_equal(uses(nest.axes, column), np.bincount((expected[:, column] - low).astype(np.intp)))
        if distinct(nest.axes, column):
            assert len(np.unique(expected[:, column])) == len(expected)
    pieces = list(nest.pieces(lambda axes: trips(axes) <= most, ordered=ordered))
    assert all(trips(piece.axes) <= most for piece in pieces)
    found = np.concatenate([visited(piece) for piece in pieces])
    if not ordered:
        found, expected = (a[np.lexsort(a.T)] for a in (found, expected))
    np.testing.assert_array_equal(found, expected)
