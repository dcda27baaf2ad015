"""sim/spec.py: instructions by hand, every legal order, and the fast model beside it on programs right and wrong."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.conftest import Interleaving, Machine, scaled
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import DeadlockError, ExecutionError, TokenError
from tilewright.hw.isa import FLAGS, PAR, AluOp, Isa, Mem, Op
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim import spec as module
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import NARROW, ODD, ODD_TWO, ROWS, WIDE, random_case
from tilewright.sim.spec import SpecDevice

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
FOUR = TINY.replace(name="four", axi_bits=32, extensions=TINY.extensions | {"wgt4"})
FINISH = {"op": Op.FINISH}
LOOP = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
ONE = {"y_size": 1, "x_size": 1, "x_stride": 1}
AT = 4096  # where the tests put data and micro-ops
OUT = 16384  # and where programs store
INT32 = st.sampled_from([0, 1, -1, 1 << 30, (1 << 31) - 1, -(1 << 31)]) | st.integers(-(1 << 31), (1 << 31) - 1)


def wrap(value):
    return (value + 2**31) % 2**32 - 2**31


def done(m, insns, spec=None):
    """The definition, after it executed `insns` and a FINISH in the memory of `m`."""
    spec = spec or SpecDevice(m.cfg)
    spec.run_image(m.dram, *m.put([*insns, FINISH]))
    return spec


def write(m, array, dtype, at=AT):
    data = np.asarray(array, dtype).reshape(-1).view(np.uint8)
    m.dram[at : at + len(data)] = data


def loading(m, mem, array, dtype, sram=0):
    """The LOAD of `array`, entries of `mem`, which is written to memory."""
    write(m, array, dtype)
    size = {Mem.INP: m.cfg.inp_entry_bytes, Mem.ACC: m.cfg.acc_entry_bytes, Mem.WGT: m.cfg.wgt_entry_bytes}[mem]
    return {"op": Op.LOAD, "mem": mem, "sram_base": sram, "dram_base": AT // size, **ONE, "x_size": len(array)}


# -- instructions by hand


def test_a_load_is_dense_and_padded():
    m = Machine(TINY)
    source = np.arange(40).reshape(10, 4)
    write(m, source, np.int8)
    shape = {"y_size": 2, "x_size": 3, "x_stride": 5, "y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 1, "x_pad_1": 1}
    spec = done(m, [{"op": Op.LOADP, "mem": Mem.INP, "sram_base": 7, "dram_base": AT // 4, "pad_value": -9, **shape}])
    rows = source.reshape(2, 5, 4)[:, :3]
    wanted = np.pad(rows, ((1, 2), (1, 1), (0, 0)), constant_values=-9).reshape(-1, 1, 4)
    got = np.array([*spec.inp.values()])
    np.testing.assert_array_equal(got[7 : 7 + 25], wanted)
    assert not got[:7].any() and not got[7 + 25 :].any()


def test_padding_has_the_width_of_an_element():
    spec = done(Machine(NARROW), [{"op": Op.LOADP, "mem": Mem.INP, **ONE, "x_pad_0": 1, "pad_value": 0x79}])
    assert spec.inp[0] == [[-7] * 4]


def test_weights_of_4_bits_are_multiplied_by_the_scale_of_their_row():
    """Two entries of 10 bytes: scales of four rows, then the weights of each; padding is as wide as a weight."""
    m = Machine(FOUR)
    rows = [(15, [-8, 7, 0, 1]), (1, [-1, 2, -3, 4]), (0, [5, 6, 7, -8]), (9, [0, 0, -7, 3])] * 2
    for entry in range(2):
        here = rows[entry : entry + 4]
        nibbles = [scale for scale, _ in here] + [q % 16 for _, row in here for q in row]
        write(m, [low | high << 4 for low, high in zip(nibbles[::2], nibbles[1::2])], np.uint8, 4100 + 10 * entry)
    shape = {"y_size": 1, "x_size": 2, "x_stride": 2, "x_pad_0": 1, "pad_value": -100}
    spec = done(m, [{"op": Op.LOADP, "mem": Mem.WGT4.id, "sram_base": 5, "dram_base": 410, **shape}])
    assert spec.wgt[5] == [[-100] * 4] * 4
    for entry in range(2):
        assert spec.wgt[6 + entry] == [[scale * q for q in row] for scale, row in rows[entry : entry + 4]]
    assert spec.wgt[8] == [[0] * 4] * 4


def test_micro_ops_and_parameters_are_not_padded():
    """And micro-ops are one row."""
    m, pads = Machine(TINY), dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 1)
    m.put_uops([(1, 2, 3), (4, 5, 6)], AT)
    write(m, [9] + [0] * 11, np.int32, 48 * 100)
    uops = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": AT // 4, "y_size": 7, "x_stride": 1, "x_size": 2, **pads}
    spec = done(m, [uops, {"op": Op.LOAD, "mem": Mem.PAR, "dram_base": 100, **ONE, **pads}])
    assert [tuple(spec.uop[k][0].values()) for k in range(3)] == [(1, 2, 3), (4, 5, 6), (0, 0, 0)]
    assert [spec.par[k][0]["bias"] for k in range(3)] == [9, 0, 0]


def test_narrow_elements_follow_each_other_from_the_lowest_bit():
    m = Machine(NARROW)
    m.dram[:4096] = 0
    write(m, [0x21, 0xF8], np.uint8)
    spec = done(m, [{"op": Op.LOAD, "mem": Mem.INP, **ONE, "dram_base": AT // 2}])
    assert spec.inp[0] == [[1, 2, -8, -1]]


def test_bytes_are_extended_into_accumulators_and_stores_wrap():
    m = Machine(TINY)
    write(m, [-128, 127, -1, 5], np.int8)
    acc8 = {"op": Op.LOAD, "mem": Mem.ACC8, **ONE, "dram_base": AT // 4}
    add = {"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": -1}
    spec = done(m, [acc8, add, {"op": Op.STORE, "mem": Mem.OUT, **ONE, "dram_base": OUT // 4}])
    assert spec.acc[0] == [[-129, 126, -2, 4]]
    assert m.dram[OUT : OUT + 4].view(np.int8).tolist() == [127, 126, -2, 4]


@pytest.mark.parametrize("mode, old, wanted", [
    ({}, 1 << 30, 1 << 30), ({"overwrite": 1}, 77, 0), ({"reset": 1}, 77, None), ({}, (1 << 31) - 1, (1 << 31) - 1),
])  # fmt: skip
def test_a_product_is_added_put_or_left_out(mode, old, wanted):
    """Two micro-ops on one accumulator: of those that overwrite the last is seen."""
    m = Machine(TINY)
    inp, wgt = m.rng.integers(-128, 128, (2, 4)), m.rng.integers(-128, 128, (2, 4, 4))
    insns = [loading(m, Mem.INP, inp, np.int8)]
    spec = done(m, insns)
    done(m, [loading(m, Mem.WGT, wgt, np.int8)], spec)
    done(m, [loading(m, Mem.ACC, [[old] * 4], np.int32, 3)], spec)
    m.put_uops([(3, 0, 1), (3, 1, 0)], AT)
    uops = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": AT // 4, "x_size": 2}
    done(m, [uops, {"op": Op.GEMM, **LOOP, "uop_end": 2, **mode}], spec)
    products = [wgt[1] @ inp[0], wgt[0] @ inp[1]]
    total = 0 if wanted is None else wanted + (products[1] if "overwrite" in mode else sum(products))
    assert spec.acc[3] == [[wrap(int(v)) for v in np.broadcast_to(total, 4)]]


@pytest.mark.parametrize("mode", [{}, {"overwrite": 1}, {"reset": 1}])
def test_a_ternary_product_fills_a_plane_per_block(mode):
    """Of two bits, bit 0 is whether a weight counts, bit 1 its sign; micro-ops are those of the unit."""
    m = Machine(TWO)
    inp, codes = m.rng.integers(-128, 128, (2, 4)), m.rng.integers(0, 4, (2, 4, 4, 4))
    spec = done(m, [loading(m, Mem.INP, inp, np.int8)])
    write(m, (codes.reshape(-1, 4) << np.arange(0, 8, 2)).sum(axis=-1), np.uint8)
    done(m, [{"op": Op.LOAD, "mem": Mem.TWGT.id, "sram_base": 6, "dram_base": AT // 16, **ONE, "x_size": 2}], spec)
    done(m, [loading(m, Mem.ACC, [[7] * 4] * 128, np.int32)], spec)
    m.put_uops([(33, 0, 7), (33, 1, 6)], AT)
    uops = {"op": Op.LOAD, "mem": Mem.TUOP.id, "sram_base": 4, "dram_base": AT // 4, "x_size": 2}
    done(m, [uops, {"op": Op.TERNARY, **LOOP, "uop_bgn": 4, "uop_end": 6, **mode}], spec)
    weights = np.array([0, 1, 0, -1])[codes]
    for t in range(4):
        products = [weights[1, t] @ inp[0], weights[0, t] @ inp[1]]
        total = products[1] if "overwrite" in mode else 0 if mode else 7 + sum(products)
        assert spec.acc[33 + 8 * t] == [np.broadcast_to(total, 4).tolist()]
    assert sum(entry != [[7] * 4] for entry in spec.acc.values()) == 4


def test_a_depthwise_product_takes_a_row_of_weights():
    m = Machine(TINY)
    inp, wgt = m.rng.integers(-128, 128, (1, 4)), m.rng.integers(-128, 128, (3, 4, 4))
    spec = done(m, [loading(m, Mem.INP, inp, np.int8)])
    done(m, [loading(m, Mem.WGT, wgt, np.int8)], spec)
    done(m, [{"op": Op.DWGEMM, **LOOP, "iter_in": 2, "wgt_in": 9, "dst_in": 1}], spec)
    assert [spec.acc[0][0], spec.acc[1][0]] == [(inp[0] * wgt[0, 0]).tolist(), (inp[0] * wgt[2, 1]).tolist()]


def test_a_depthwise_product_of_several_taps_takes_a_group_of_rows():
    """Blocks of 8: groups of 4 rows, two of which are an entry."""
    m = Machine(ROWS)
    inp, wgt = m.rng.integers(-128, 128, (6, 8)), m.rng.integers(-128, 128, (3, 8, 8))
    spec = done(m, [loading(m, Mem.INP, inp, np.int8)])
    done(m, [loading(m, Mem.WGT, wgt, np.int8)], spec)
    loop = {"op": Op.DWGEMM, **LOOP, "iter_in": 2, "src_in": 2, "wgt_in": 5, "dst_in": 1}
    done(m, [{**loop, "extra_taps": 2}], spec)
    wanted = [(inp[2 * j : 2 * j + 3] * wgt.reshape(-1, 8)[20 * j : 20 * j + 3]).sum(axis=0).tolist() for j in (0, 1)]
    assert [spec.acc[0][0], spec.acc[1][0]] == wanted


ALU = [
    (AluOp.MIN, 5, -7, -7), (AluOp.MAX, 5, -7, 5), (AluOp.ADD, (1 << 31) - 1, 1, -(1 << 31)),
    (AluOp.MUL, 1 << 20, 3 << 12, 0), (AluOp.MUL, -3, 7, -21),
    (AluOp.SHR, -5, 0, -5), (AluOp.SHR, -5, 1, -3), (AluOp.SHR, 1 << 30, 30, 1), (AluOp.SHR, 1 << 30, 31, 0),
    (AluOp.SHR, -(1 << 31), 31, -1), (AluOp.SHR, -5, 32, -1), (AluOp.SHR, 5, (1 << 31) - 1, 0),
    (AluOp.SHR, 1 << 30, -1, -(1 << 31)), (AluOp.SHR, 3, -31, -(1 << 31)), (AluOp.SHR, 3, -32, 0),
    (AluOp.SHR, -1, -(1 << 31), 0),
]  # fmt: skip


@pytest.mark.parametrize("op, a, b, result", ALU)
def test_the_alu_on_tensors_and_immediates(op, a, b, result):
    m = Machine(TINY)
    write(m, [[a] * 4, [b] * 4], np.int32)
    load = {"op": Op.LOAD, "mem": Mem.ACC, "dram_base": AT // 16, **ONE, "x_size": 2}
    loop = {"op": Op.ALU, **LOOP, "alu_op": op, "iter_in": 1}
    m.put_uops([(0, 1, 0)], 2 * AT)
    uop = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": 2 * AT // 4, "x_size": 1}
    assert done(m, [load, uop, loop]).acc[0] == [[result] * 4]
    if -(1 << 15) <= b < 1 << 15:
        assert done(m, [load, {**loop, "use_imm": 1, "imm": b}]).acc[0] == [[result] * 4]


@given(
    acc=st.lists(INT32, min_size=4, max_size=4),
    bias=INT32,
    multiplier=st.integers(0, (1 << 31) - 1),
    exponent=st.integers(-32, 31),
    limits=st.tuples(*[st.integers(-128, 127)] * 3),
    mode=st.integers(0, 1),
)
@settings(max_examples=100)
@example([5, -5, 0, 1], 0, 1 << 30, 0, (3, 5, -5), 0)
@example([(1 << 31) - 1, -(1 << 31), 7, 9], 1 << 30, (1 << 31) - 1, 31, (127, -128, 127), 1)
def test_parameters_scale_round_and_limit(acc, bias, multiplier, exponent, limits, mode):
    """STORE to OUTQ, and RESCALE, which uses neither bias nor zero point nor limits, against exact fractions."""
    m, (zero_point, low, high) = Machine(TINY), limits
    fields = {"bias": bias, "multiplier": multiplier, "exponent": exponent, "mode": mode}
    channel = PAR.encode(1, **fields, zero_point=zero_point, low=low, high=high).view(np.uint8).reshape(-1)[:12]
    spec = done(m, [loading(m, Mem.ACC, [acc], np.int32, 2)])
    write(m, np.tile(channel, 4), np.uint8, 48 * 100)
    load = {"op": Op.LOAD, "mem": Mem.PAR, "sram_base": 5, "dram_base": 100, **ONE}
    storeq = {"op": Op.STORE, "mem": Mem.OUTQ, "sram_base": 2, "dram_base": OUT // 4, **ONE, "par_base": 5}
    rescale = {"op": Op.ALU, **LOOP, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": 5, "iter_in": 3, "dst_in": 1}
    done(m, [load, storeq, rescale], spec)
    wanted = [scaled(wrap(value + bias), multiplier, exponent, mode) + zero_point for value in acc]
    assert m.dram[OUT : OUT + 4].view(np.int8).tolist() == [min(max(value, low), high) for value in wanted]
    assert spec.acc[2] == [[wrap(scaled(value, multiplier, exponent, mode)) for value in acc]]


def test_rows_of_a_store_step_through_memory_and_parameters():
    m = Machine(TINY)
    spec = done(m, [loading(m, Mem.ACC, np.arange(24).reshape(6, 4), np.int32)])
    for entry in range(8):
        for p in spec.par[entry]:
            p.update(multiplier=1 << 30, exponent=1, zero_point=10 * entry, low=-128, high=127)
    m.dram[OUT:] = 99
    shape = {"y_size": 2, "x_size": 3, "x_stride": 5, "dram_base": OUT // 4}
    done(m, [{"op": Op.STORE, "mem": Mem.OUTQ, **shape, "par_base": 1, "par_step": 4}], spec)
    wanted = np.full((2, 5, 4), 99)
    wanted[:, :3] = np.arange(24).reshape(2, 3, 4) + np.array([10, 50])[:, None, None]
    np.testing.assert_array_equal(m.dram[OUT : OUT + 40], wanted.reshape(-1))


# -- the model beside it


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", [TINY, ODD, NARROW, WIDE, ROWS, FOUR, TWO, ODD_TWO], ids=lambda c: c.name)
def test_random_programs_give_the_same_memory_on_the_model(cfg):
    """One after the other: each meets what the one before left in the scratchpads."""
    spec, model, seen = SpecDevice(cfg), ModelDevice(cfg), set()
    for seed in range(12 if "ternary" in cfg.units else 24):
        print(f"{cfg.name} seed {seed}")
        image, address, count = random_case(cfg, seed)
        expected, got = image.copy(), image.copy()
        stats = spec.run_image(expected, address, count)
        assert model.run_image(got, address, count) == stats
        np.testing.assert_array_equal(got, expected)
        seen |= set(stats.insns)
    named = {"acc8": "LOAD.ACC8", "requant": "STORE.OUTQ", "rescale": "ALU.RESCALE", "depthwise": "DWGEMM"}
    named |= {"lookup": "ALU.LOOKUP", "lane_reduce": "ALU.REDUCE", "wgt4": "LOADP.WGT4"}
    assert {named[name] for name in cfg.extensions if name in named} <= seen
    if "ternary" in cfg.units:
        assert {"TERNARY", "LOAD.TWGT", "LOAD.TUOP"} <= seen


@pytest.mark.parametrize("cfg", [TINY, ODD, TWO], ids=lambda c: c.name)
def test_any_legal_interleaving_gives_the_same_memory(cfg):
    for program in range(100, 106):
        image, address, count = random_case(cfg, program)
        orders, expected = set(), image.copy()
        SpecDevice(cfg).run_image(expected, address, count)
        for seed in range(4):
            print(f"{cfg.name} program {program} seed {seed}")
            choose, got = Interleaving(seed), image.copy()
            SpecDevice(cfg, choose=choose).run_image(got, address, count)
            np.testing.assert_array_equal(got, expected)
            assert sorted(choose.order) == list(range(count))
            orders.add(tuple(choose.order))
        assert len(orders) == 4


# -- programs that are wrong


def end(device, image, place):
    """Class and instruction of the error that a program ends in; None where it does not."""
    try:
        device.run_image(image.copy(), *place)
    except ExecutionError as exc:
        return type(exc), exc.index
    return None


NOP = {"op": Op.LOAD, "mem": Mem.UOP}
PUSH = {"op": Op.LOAD, "mem": Mem.INP, "push_next": 1}


@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda c: c.name)
def test_tokens_of_any_program_end_as_on_the_model(cfg):
    """Up to eight instructions that do nothing, in any queue, with any of their flags, and a FINISH."""
    m, rng = Machine(cfg.replace(token_depth=2), nbytes=1024), np.random.default_rng(0)
    spec, model, seen = SpecDevice(m.cfg), ModelDevice(m.cfg), set()
    kinds = [(PUSH, FLAGS[1::2]), (NOP, FLAGS), ({"op": Op.STORE}, FLAGS[::2])]
    if cfg is TWO:
        kinds = [(PUSH, FLAGS), (NOP, FLAGS), ({"op": Op.STORE}, FLAGS), ({"op": Op.TERNARY}, FLAGS)]
    for number in range(1500):
        program = []
        for kind in rng.integers(0, len(kinds), rng.integers(9)):
            f, flags = kinds[kind]
            program.append({**f, "push_next": 0, **{flag: rng.random() < 0.3 for flag in flags}})
        place = m.put([*program, {**FINISH, **{flag: rng.random() < 0.1 for flag in FLAGS}}])
        expected = end(model, m.dram, place)
        assert end(spec, m.dram, place) == expected, f"program {number}: {program}"
        seen.add(expected and expected[0])
    assert seen == {None, DeadlockError, TokenError, ExecutionError}


@pytest.mark.parametrize("cfg", [TINY, NARROW, PRESETS["vta"], TWO], ids=lambda c: c.name)
def test_any_words_are_refused_as_on_the_model(cfg):
    spec, model, isa, refused = SpecDevice(cfg), ModelDevice(cfg), Isa(cfg), 0
    for seed in range(60):
        print(f"{cfg.name} seed {seed}")
        rng = np.random.default_rng(seed)
        words = rng.integers(0, 1 << 64, (4, 2), np.uint64, endpoint=False)
        words[:, 0] &= ~np.uint64(0x78)  # no tokens
        words[3] = isa.formats["FINISH"].encode(op=Op.FINISH)[0]
        found = end(spec, words.view(np.uint8).reshape(-1), (0, 4))
        assert found == end(model, words.view(np.uint8).reshape(-1), (0, 4))
        refused += found is not None
    assert refused > 30


# -- the device


def test_it_is_the_device_called_spec_and_runs_what_the_recorder_makes():
    p, device = Program(TINY), open_device("spec", TINY)
    x, y = p.buffer("x", (3, 4)), p.buffer("y", (3, 4), kind="output")
    p.load(Mem.ACC8, 0, x, 0, x_size=3)
    p.alu(AluOp.ADD, [(3, 1, 0)], 0, imm=5)
    p.store(0, y, 0, x_size=3)
    values = np.arange(12).reshape(3, 4)
    assert isinstance(device, SpecDevice)
    outputs, _ = run(p.finish(), {"x": values}, device)
    np.testing.assert_array_equal(outputs["y"], values + 5)


def test_scratchpads_are_kept_and_tokens_are_not():
    m = Machine(TINY)
    add = {"op": Op.ALU, **LOOP, "alu_op": AluOp.ADD, "use_imm": 1, "imm": 5}
    spec = done(m, [add])
    with pytest.raises(TokenError):
        done(m, [{**add, "push_prev": 1}], spec)
    assert done(m, [add], spec).acc[0] == [[10] * 4]


def test_it_is_short_and_takes_nothing_from_the_model():
    text = Path(module.__file__).read_text()
    assert len(text.splitlines()) < 320
    names = [node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert "memory" in names and not [name for name in names if name.split(".")[0] in ("model", "timing", "rtl")]
