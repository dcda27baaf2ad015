import time

import numpy as np
import pytest

from tilewright.hw.isa import AluOp, Op
from tilewright.sim import alu

UOPS = 60000
OPS = [op for op in AluOp if op != AluOp.RESCALE]


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
        insns += [kit.load_uops(address, len(uops)), {"op": Op.ALU, "alu_op": OPS[m.rng.integers(len(OPS))], **fields}]
    return m, insns


@pytest.mark.parametrize("seed", range(60))
def test_random_loops_equal_one_micro_op_after_the_other(kit, agree, any_cfg, seed):
    agree(*random_program(kit, any_cfg, seed))


@pytest.mark.parametrize("seed", range(30))
def test_results_do_not_depend_on_where_an_instruction_is_cut(kit, agree, monkeypatch, seed):
    monkeypatch.setattr(alu, "_ROWS", 5)
    agree(*random_program(kit, kit.CONFIGS["tiny"], 1000 + seed))


@pytest.mark.parametrize("distance", [1, 2, 3, 7])
@pytest.mark.parametrize("op", OPS)
def test_results_read_again_at_any_distance(kit, agree, op, distance):
    """acc[i + distance] = op(acc[i + distance], acc[i]): each result is an operand `distance` micro-ops later."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], distance)
    m.put_uops([(distance, 0, 0)], UOPS)
    loop = {"uop_end": 1, "iter_out": 1, "iter_in": 60, "dst_in": 1, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", OPS)
def test_operands_overwritten_later_are_read_before(kit, agree, op):
    """acc[i] = op(acc[i], acc[i + 1]), and the same backwards in one instruction."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 7)
    m.put_uops([(i, i + 1, 0) for i in range(30)] + [(i, i + 1, 0) for i in reversed(range(30))], UOPS)
    loop = {"uop_end": 60, "iter_out": 2, "iter_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 60), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", OPS)
def test_reductions_into_repeated_accumulators(kit, agree, op):
    """A pooling window: four accumulators, each reduced over nine others."""
    m, insns = kit.filled(kit.CONFIGS["tiny"], 8)
    m.put_uops([(y * 2 + x, 4 + y * 20 + x * 2, 0) for y in range(2) for x in range(2)], UOPS)
    loop = {"uop_end": 4, "iter_out": 3, "iter_in": 3, "src_out": 10, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 4), {"op": Op.ALU, "alu_op": op, **loop}])


@pytest.mark.parametrize("op", OPS)
def test_an_accumulator_combined_with_itself(kit, agree, op):
    m, insns = kit.filled(kit.CONFIGS["tiny"], 9)
    m.put_uops([(3, 3, 0)], UOPS)
    loop = {"uop_end": 1, "iter_out": 2, "iter_in": 10, "dst_in": 1, "src_in": 1}
    agree(m, [*insns, kit.load_uops(UOPS, 1), {"op": Op.ALU, "alu_op": op, **loop}])


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
def test_the_most_trips_on_one_accumulator_cost_nothing(kit, machine, op, imm, start, result):
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[...] = start
    began = time.perf_counter()
    loop = {"uop_end": 1, "iter_out": 16383, "iter_in": 16383}
    stats = m.run([{"op": Op.ALU, "alu_op": op, "use_imm": 1, "imm": imm, **loop}])
    assert time.perf_counter() - began < 1
    assert stats.uops == 16383 * 16383
    assert (m.model.state.acc[0] == kit.wrap(result % (1 << 32))).all()
    assert (m.model.state.acc[1:] == start).all()


def test_an_immediate_reads_no_second_accumulator(kit, machine):
    """Its source index may lie anywhere."""
    m = machine(kit.CONFIGS["tiny"])
    loop = {"uop_end": 1, "iter_out": 3, "iter_in": 1, "src_out": 200}
    m.run([{"op": Op.ALU, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 2, **loop}])
    assert (m.model.state.acc[0] == 6).all()


def test_a_long_reduction_is_few_operations(kit, machine):
    """All other accumulators summed 16383 times into the first."""
    m = machine(kit.CONFIGS["vta"])
    m.model.state.acc[...] = np.arange(2048)[:, None]
    m.model.state.uop[0] = m.isa.uop.encode(dst=0, src=1)[0, 0]
    began = time.perf_counter()
    m.run([{"op": Op.ALU, "alu_op": AluOp.ADD, "uop_end": 1, "iter_out": 16383, "iter_in": 2047, "src_in": 1}])
    assert time.perf_counter() - began < 5
    assert (m.model.state.acc[0] == kit.wrap(16383 * sum(range(2048)))).all()
