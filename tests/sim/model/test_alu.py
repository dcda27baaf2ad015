import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import AluOp, Op
from tilewright.sim.model import alu
from tilewright.sim.random_programs import WIDE

UOPS = 60000
BASE = [op for op in AluOp if op < AluOp.RESCALE]


def random_program(kit, cfg, seed):
    m, insns = kit.filled(cfg, seed)
    limits = (min(cfg.acc_depth, 128), min(cfg.acc_depth, cfg.inp_depth, 128), 9)
    for k in range(4):
        fields, uops = kit.random_loop(m.rng, limits, kit.random_uops(m.rng) * [1, 1, 0])
        fields = {key: v for key, v in fields.items() if not key.startswith("wgt")}
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        imm = {"use_imm": 1, "imm": int(m.rng.choice([-32768, -33, -17, -1, 0, 1, 3, 15, 31, 32, 32767]))}
        fields |= imm if m.rng.integers(2) else {"use_imm": 0}
        op = BASE[m.rng.integers(len(BASE))]
        if "rescale" in cfg.extensions and not m.rng.integers(3):
            op, fields = AluOp.RESCALE, fields | {"use_imm": 1, "imm": int(m.rng.integers(cfg.par_entries))}
        insns += [kit.load_uops(address, len(uops)), {"op": Op.ALU, "alu_op": op, **fields}]
    return m, insns


@pytest.mark.parametrize("seed", range(60))
def test_random_loops_equal_one_micro_op_after_the_other(kit, agree, any_cfg, seed):
    agree(*random_program(kit, any_cfg, seed))


@pytest.mark.parametrize("seed", range(30))
def test_results_do_not_depend_on_where_an_instruction_is_cut(kit, agree, monkeypatch, seed):
    monkeypatch.setattr(alu, "_ROWS", 5)
    agree(*random_program(kit, kit.CONFIGS["tiny"], 1000 + seed))


@pytest.mark.parametrize("distance", [1, 2, 3, 7])
@pytest.mark.parametrize("op", BASE)
def test_results_read_again_at_any_distance(kit, agree, op, distance):
    """acc[i + distance] = op(acc[i + distance], acc[i]): each result is an operand `distance` micro-ops later."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], distance)
    m.put_uops([(distance, 0, 0)], UOPS)
    loop = {"uop_end": 1, "iter_out": 1, "iter_in": 60, "dst_in": 1, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", BASE)
def test_operands_overwritten_later_are_read_before(kit, agree, op):
    """acc[i] = op(acc[i], acc[i + 1]), and the same backwards in one instruction."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 7)
    m.put_uops([(i, i + 1, 0) for i in range(30)] + [(i, i + 1, 0) for i in reversed(range(30))], UOPS)
    loop = {"uop_end": 60, "iter_out": 2, "iter_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 60), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", BASE)
def test_reductions_into_repeated_accumulators(kit, agree, op):
    """A pooling window: four accumulators, each reduced over nine others."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 8)
    m.put_uops([(y * 2 + x, 4 + y * 20 + x * 2, 0) for y in range(2) for x in range(2)], UOPS)
    loop = {"uop_end": 4, "iter_out": 3, "iter_in": 3, "src_out": 10, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 4), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", BASE)
def test_an_accumulator_combined_with_itself(kit, agree, op):
    m, insns = kit.filled(kit.CONFIGS["tiny"], 9)
    m.put_uops([(3, 3, 0)], UOPS)
    loop = {"uop_end": 1, "iter_out": 2, "iter_in": 10, "dst_in": 1, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), {"op": Op.ALU, "alu_op": op, **loop}])


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
def test_rescaling_wraps_at_32_bits(kit, machine, start, multiplier, exponent, mode, result):
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[5] = start
    for name, value in (("multiplier", multiplier), ("exponent", exponent), ("mode", mode), ("bias", 99), ("low", 1)):
        m.model.state.par[name][3] = value
    m.model.state.uop[0] = m.isa.uop.encode(dst=5)[0, 0]
    loop = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
    m.run([{"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": 3, **loop}])
    np.testing.assert_array_equal(m.model.state.acc[5], kit.wrap(np.array(result)))


def test_an_accumulator_visited_often_is_rescaled_as_often(kit, agree):
    """dst = y + k: 1 to 4 uses each, and trips that move nothing."""
    m, insns = kit.filled(kit.CONFIGS["batch2"], 3)
    m.put_uops([(0, 0, 0), (3, 0, 0)], UOPS)
    loop = {"uop_end": 2, "iter_out": 5, "iter_in": 2, "dst_out": 1}
    rescale = [{"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": k, **loop} for k in range(8)]
    agree(m, [*insns, kit.load_uops(UOPS, 2), *rescale])


@pytest.mark.parametrize("entry", [-1, 8, 32767])
def test_parameters_that_do_not_exist_are_an_error(kit, machine, entry):
    m = machine(kit.CONFIGS["tiny"])
    insn = {"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": entry, "uop_end": 1, "iter_out": 1}
    m.run([insn])  # no trips: nothing is read
    with pytest.raises(AccessError, match=rf"PAR entries {entry}\.\.{entry} are outside 0\.\.7$"):
        m.run([insn | {"iter_in": 1}])


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
def test_the_most_trips_on_one_accumulator_cost_nothing(kit, machine, effort, op, imm, start, result):
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[...] = start
    loop = {"uop_end": 1, "iter_out": 16383, "iter_in": 16383}
    with effort() as taken:
        stats = m.run([{"op": Op.ALU, "alu_op": op, "use_imm": 1, "imm": imm, **loop}])
    print(taken)
    assert taken.calls < 10_000 and taken.nbytes < 1 << 20
    assert stats.uops == 16383 * 16383
    assert (m.model.state.acc[0] == kit.wrap(result % (1 << 32))).all()
    assert (m.model.state.acc[1:] == start).all()


def test_an_immediate_reads_no_second_accumulator(kit, machine):
    """Its source index may lie anywhere."""
    m = machine(kit.CONFIGS["tiny"])
    loop = {"uop_end": 1, "iter_out": 3, "iter_in": 1, "src_out": 200}
    m.run([{"op": Op.ALU, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 2, **loop}])
    assert (m.model.state.acc[0] == 6).all()


def test_a_long_reduction_is_few_operations(kit, machine, effort):
    """All other accumulators summed 16383 times into the first."""
    m = machine(PRESETS["vta"])
    m.model.state.acc[...] = np.arange(2048)[:, None]
    m.model.state.uop[0] = m.isa.uop.encode(dst=0, src=1)[0, 0]
    with effort() as taken:
        m.run([{"op": Op.ALU, "alu_op": AluOp.ADD, "uop_end": 1, "iter_out": 16383, "iter_in": 2047, "src_in": 1}])
    print(taken)
    assert taken.calls < 10_000 and taken.nbytes < 1 << 20
    assert (m.model.state.acc[0] == kit.wrap(16383 * sum(range(2048)))).all()


@pytest.mark.parametrize("imm, reduced", [(0, np.add), (1, np.maximum)])
def test_a_reduction_covers_the_channels_of_each_row(kit, machine, imm, reduced):
    """A batch of 4: each row by itself; sums wrap, and a sum of sums is one of equal values."""
    m = machine(WIDE)
    acc = m.model.state.acc
    acc[...] = m.rng.integers(-(1 << 31), 1 << 31, acc.shape)
    before = acc.astype(np.int64).reshape(-1, 4, 4)
    m.model.state.uop[:2] = [m.isa.uop.encode(dst=d)[0, 0] for d in (0, 2)]
    m.run([{"op": Op.ALU, "alu_op": AluOp.REDUCE, "use_imm": 1, "imm": imm, "uop_end": 2, "iter_out": 3, "iter_in": 1,
            "dst_out": 1}])  # fmt: skip
    wanted = before.copy()
    for entry in (0, 2, 1, 3, 2, 4):
        wanted[entry] = kit.wrap(reduced.reduce(wanted[entry], axis=1, keepdims=True))
    np.testing.assert_array_equal(acc.reshape(-1, 4, 4), wanted)


def test_a_table_is_looked_up_as_often_as_it_is_named(machine):
    """Values beyond int8 take the ends; what a table gives is looked up again."""
    m = machine(WIDE)
    m.model.state.tables[1] = np.arange(255, -1, -1) - 130
    acc = m.model.state.acc
    acc[:2] = [[-128, -5, 0, 127] * 4, [-(1 << 31), -129, 128, (1 << 31) - 1] * 4]
    m.model.state.uop[0] = 0
    look = {"op": Op.ALU, "alu_op": AluOp.LOOKUP, "use_imm": 1, "imm": 1, "uop_end": 1, "iter_out": 1}
    m.run([look | {"iter_in": 2, "dst_in": 1}])
    assert acc[:2].tolist() == [[125, 2, -3, -130] * 4, [125, 125, -130, -130] * 4]
    m.run([look | {"iter_in": 2}])  # 125 -> -128 -> 125, -130 -> 125 -> -128
    assert acc[0].tolist() == [125, 2, -3, -128] * 4
