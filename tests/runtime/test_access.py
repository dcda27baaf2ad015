"""Footprints of instructions against loops over every entry and byte."""

import tracemalloc

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem, Op, entry_bytes
from tilewright.runtime.access import DramAccess, dram_access, out_of_range, scratchpad_accesses, tile_entries
from tilewright.runtime.symbols import Symbol
from tilewright.sim.random_programs import ROWS

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
NO_UOPS = np.zeros((0, 3), np.int64)


def entries(access):
    """The entries of an access as a set, whichever way they are written."""
    found = np.arange(4096)[access.entries].tolist()
    assert found == sorted(set(found))
    return set(found)


def footprint(f, uops=NO_UOPS, cfg=TINY):
    """(memory, written) -> entries."""
    accesses = scratchpad_accesses(cfg, f, uops)
    found = {(a.mem, a.write): entries(a) for a in accesses}
    assert len(found) == len(accesses)
    return found


def loop_fields(rng, op, n):
    f = {"op": op, "reset": 0, "uop_bgn": 5, "uop_end": 5 + n, "use_imm": 0}
    f |= {"iter_out": int(rng.integers(1, 12)), "iter_in": int(rng.integers(1, 12))}
    return f | {f"{name}_{loop}": int(rng.integers(0, 5)) for name in ("dst", "src", "wgt") for loop in ("out", "in")}


def touched(f, uops, column, name):
    return {
        int(uop[column]) + i * f[f"{name}_out"] + j * f[f"{name}_in"]
        for i in range(f["iter_out"])
        for j in range(f["iter_in"])
        for uop in uops
    }


ONE_TRIP = {"reset": 0, "uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
ONE_TRIP |= {f"{name}_{loop}": 0 for name in ("dst", "src", "wgt") for loop in ("out", "in")}


@pytest.mark.parametrize("seed", range(20))
def test_products_and_operations_touch_what_their_loops_issue(seed):
    rng = np.random.default_rng(seed)
    uops = rng.integers(0, 20, (int(rng.integers(1, 6)), 3))
    f = loop_fields(rng, Op.GEMM, len(uops))
    micro_ops = {(Mem.UOP, False): set(range(5, 5 + len(uops)))}
    dst = {(Mem.ACC, True): touched(f, uops, 0, "dst")}
    sources = {(Mem.INP, False): touched(f, uops, 1, "src"), (Mem.WGT, False): touched(f, uops, 2, "wgt")}
    assert footprint(f, uops) == micro_ops | dst | sources
    assert footprint({**f, "reset": 1}, uops) == micro_ops | dst
    rows = {(Mem.WGT, False): {row // TINY.block_in for row in touched(f, uops, 2, "wgt")}}
    assert footprint({**f, "op": Op.DWGEMM}, uops) == micro_ops | dst | sources | rows
    assert footprint({**f, "op": Op.DWGEMM, "reset": 1}, uops) == micro_ops | dst
    near = {(Mem.INP, False): {s + t for s in touched(f, uops, 1, "src") for t in range(4)}}
    groups = {(Mem.WGT, False): {group // 2 for group in touched(f, uops, 2, "wgt")}}
    taps = {**f, "op": Op.DWGEMM, "extra_taps": 3}
    assert footprint(taps, uops, ROWS) == micro_ops | dst | near | groups
    f |= {"op": Op.ALU, "alu_op": AluOp.ADD}
    assert footprint(f, uops) == micro_ops | dst | {(Mem.ACC, False): touched(f, uops, 1, "src")}
    assert footprint({**f, "use_imm": 1}, uops) == micro_ops | dst
    rescale = {**f, "use_imm": 1, "alu_op": AluOp.RESCALE, "imm": 5}
    assert footprint(rescale, uops) == micro_ops | dst | {(Mem.PAR, False): {5}}
    lookup = {**f, "use_imm": 1, "alu_op": AluOp.LOOKUP, "imm": 0}
    assert footprint(lookup, uops, ROWS) == micro_ops | dst | {(Mem.PAR, False): set(range(8, 24))}
    assert footprint({**lookup, "alu_op": AluOp.REDUCE}, uops, ROWS) == micro_ops | dst


def test_loops_beyond_a_scratchpad_are_not_counted_one_by_one():
    """Of what lies outside, the smallest and the largest index alone; else as many flags as there are entries."""
    f = ONE_TRIP | {"op": Op.GEMM, "uop_end": 256, "iter_out": 16383, "iter_in": 16383, "src_in": 3}
    uops = np.stack([np.arange(256) % 128, np.arange(256) + 2, np.arange(256) % 128], axis=1)
    tracemalloc.start()
    try:
        accesses = {a.mem: a for a in scratchpad_accesses(TINY, f, uops)}
        assert accesses[Mem.INP].entries == slice(2, 257 + 3 * 16382 + 1)
        assert accesses[Mem.ACC].entries == accesses[Mem.WGT].entries == slice(0, 128)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
    assert out_of_range(TINY, list(accesses.values())) == f"reads INP entry {257 + 3 * 16382}, but tiny has 256"


@pytest.mark.parametrize("seed", range(10))
def test_unit_ternary_writes_all_planes_and_has_micro_ops_of_its_own(seed):
    rng = np.random.default_rng(seed)
    f, uops = loop_fields(rng, Op.TERNARY, 5) | {"iter_out": 2, "iter_in": 3}, rng.integers(0, 3, (5, 3))
    f |= {"dst_out": 2, "dst_in": 1}
    planes = {(Mem.ACC, True): {d + 8 * t for d in touched(f, uops, 0, "dst") for t in range(4)}}
    micro_ops = {(Mem.TUOP, False): set(range(f["uop_bgn"], f["uop_end"]))}
    reads = {(mem, False): touched(f, uops, c, name) for mem, c, name in ((Mem.INP, 1, "src"), (Mem.TWGT, 2, "wgt"))}
    assert footprint(f, uops, TWO) == micro_ops | planes | reads
    assert footprint({**f, "reset": 1}, uops, TWO) == micro_ops | planes
    assert out_of_range(TWO, scratchpad_accesses(TWO, f, uops)) is None


GEMM, DWGEMM, TERNARY = (ONE_TRIP | {"op": op} for op in (Op.GEMM, Op.DWGEMM, Op.TERNARY))


@pytest.mark.parametrize(
    "cfg, f, uop, text",
    [
        (TWO, TERNARY, (8, 0, 0), "names ACC entry 8, but unit ternary takes the first 8 of every 32 alone"),
        (TWO, TERNARY, (127, 0, 0), "names ACC entry 127, but unit ternary takes the first 8 of every 32 alone"),
        (TWO, TERNARY, (128, 0, 0), "writes ACC entry 128, but tiny_two has 128"),
        (TWO, TERNARY, (96, 0, 128), "reads TWGT entry 128, but tiny_two has 128"),
        (TWO, TERNARY, (103, 0, 127), None),
        (TINY, GEMM, (127, 255, 127), None),
        (TINY, GEMM, (-1, 0, 0), "writes ACC entry -1, but tiny has 128"),
        (TINY, GEMM | {"dst_in": 2, "iter_in": 2}, (127, 0, 0), "writes ACC entry 129, but tiny has 128"),
        (TINY, GEMM, (0, 256, 128), "reads INP entry 256, but tiny has 256"),
        (TINY, DWGEMM | {"iter_in": 2, "wgt_in": 4 * 128}, (0, 0, 127), "reads WGT entry 159, but tiny has 128"),
        (TINY, {"op": Op.LOAD, "mem": Mem.PAR, "x_size": 1, "y_size": 1, "sram_base": 8}, (0, 0, 0),
         "writes PAR entry 8, but tiny has 8"),
    ],
)  # fmt: skip
def test_the_first_access_beyond_its_scratchpad_is_named(cfg, f, uop, text):
    assert out_of_range(cfg, scratchpad_accesses(cfg, f, np.array([uop]))) == text


@pytest.mark.parametrize(
    "f, uops",
    [
        (GEMM | {"iter_out": 0}, 1),
        (GEMM | {"iter_in": 0}, 1),
        (GEMM, 0),
        ({"op": Op.FINISH}, 0),
    ],
)
def test_instructions_that_touch_nothing(f, uops):
    assert footprint(GEMM, np.zeros((1, 3), np.int64)) and not footprint(f, np.zeros((uops, 3), np.int64))
    assert dram_access(TINY, f) is None


def transfer(op, mem, **sizes):
    names = ("sram_base", "dram_base", "y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    return {"op": op, "mem": mem, **dict.fromkeys(names, 0), **sizes}


PADDED = {"sram_base": 7, "y_size": 2, "x_size": 3, "y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 1, "x_pad_1": 4}


@pytest.mark.parametrize(
    "op, mem, space, count",
    [
        (Op.LOAD, Mem.INP, Mem.INP, 5 * 8),
        (Op.LOADP, Mem.WGT, Mem.WGT, 5 * 8),
        (Op.LOAD, Mem.ACC, Mem.ACC, 5 * 8),
        (Op.LOAD, Mem.ACC8, Mem.ACC, 5 * 8),
        (Op.LOADP, Mem.WGT4.id, Mem.WGT, 5 * 8),
        (Op.LOAD, Mem.UOP, Mem.UOP, 3),  # one row, never padded
        (Op.LOAD, Mem.PAR, Mem.PAR, 2 * 3),  # never padded
        (Op.LOAD, Mem.TWGT.id, Mem.TWGT, 5 * 8),
        (Op.LOAD, Mem.TUOP.id, Mem.TUOP, 3),
        (Op.STORE, Mem.OUT, Mem.ACC, 2 * 3),  # dense in the scratchpad
    ],
)
def test_transfers_cover_whole_tiles_on_chip(op, mem, space, count):
    f = transfer(op, mem, **PADDED)
    assert tile_entries(f) == count
    assert footprint(f) == {(space, op != Op.STORE): set(range(7, 7 + count))}
    assert not footprint({**f, "x_size": 0})


def test_a_requantising_store_reads_the_parameters_of_its_rows():
    f = transfer(Op.STORE, Mem.OUTQ, **PADDED) | {"par_base": 4, "par_step": 0}
    acc = {(Mem.ACC, False): set(range(7, 7 + 6))}
    assert footprint(f) == acc | {(Mem.PAR, False): {4}}
    assert footprint({**f, "par_step": 3}) == acc | {(Mem.PAR, False): {4, 7}}
    assert not footprint({**f, "y_size": 0}) and not footprint({**f, "x_size": 0})


@pytest.mark.parametrize(
    "op, mem", [(Op.LOAD, Mem.WGT), (Op.LOADP, Mem.INP), (Op.LOAD, Mem.ACC8), (Op.LOAD, Mem.PAR), (Op.STORE, Mem.OUTQ),
                (Op.LOAD, Mem.UOP), (Op.LOADP, Mem.WGT4)]
)  # fmt: skip
def test_transfers_touch_the_bytes_of_their_rows(op, mem):
    """Micro-ops come in one row, whatever `y_size`."""
    size, rows = entry_bytes(TINY, mem), 1 if mem == Mem.UOP else 2
    f = transfer(op, mem, dram_base=11, x_stride=5, **PADDED)
    access = dram_access(TINY, f)
    assert access is not None and access.write == (op == Op.STORE)
    found = [access.start + y * access.pitch + b for y in range(access.rows) for b in range(access.nbytes)]
    assert found == [(11 + 5 * y + x) * size + b for y in range(rows) for x in range(3) for b in range(size)]
    assert dram_access(TINY, f | {"x_size": 0}) is None
    assert (dram_access(TINY, f | {"y_size": 0}) is None) == (rows == 2)


@pytest.mark.parametrize("seed", range(40))
def test_spans_are_what_some_value_touches(seed):
    rng = np.random.default_rng(seed)
    low, high = (0, 1, 1, 0, 1, 0, 0), (9, 5, 5, 4, 30, 9, 9)
    start, rows, nbytes, gap, limit, step, within = rng.integers(low, high).tolist()
    symbol = Symbol("position", limit, step, int(rng.integers(1, 9)), within)
    access = DramAccess(False, start, rows, nbytes, nbytes + gap, symbol)
    touched = {
        start + offset + row * (nbytes + gap) + byte
        for offset in symbol.offsets().tolist()
        for row in range(rows)
        for byte in range(nbytes)
    }
    spans = access.spans()
    assert {byte for first, end in spans.tolist() for byte in range(first, end)} == touched
    assert (spans[1:, 0] > spans[:-1, 1]).all()
    assert access.end == max(touched) + 1


def test_very_many_spans_become_one():
    access = DramAccess(True, 7, 100, 1, 10_000_000, Symbol("position", 1000, step=3))
    assert access.spans().tolist() == [[7, access.end]]
    without = access._replace(symbol=None)
    assert without.spans().tolist() == [[7 + k * 10_000_000, 8 + k * 10_000_000] for k in range(100)]
