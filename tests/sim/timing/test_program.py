"""sim/timing/program.py: what a program's instructions move and issue."""

from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, UnsupportedError
from tilewright.hw.isa import Isa, Mem, Op
from tilewright.sim.timing.issues import PLACE
from tilewright.sim.timing.program import Write, columns

PYNQ, TINY = PRESETS["pynq_z1"], PRESETS["tiny"]


def no_uops(first, count):
    return np.zeros(count, np.uint32)


def column(cfg, name, skip=frozenset(), /, **fields):
    isa = Isa(cfg)
    finish = isa.formats["FINISH"].encode(op=Op.FINISH)
    return columns(cfg, np.concatenate([isa.formats[name].encode(**fields), finish]), no_uops, skip)


TILE = {"op": Op.LOAD, "mem": Mem.INP, "sram_base": 7, "dram_base": 100, "y_size": 3, "x_size": 5, "x_stride": 9}
PADS = {"y_pad_0": 1, "y_pad_1": 2, "x_pad_0": 1, "x_pad_1": 3}


def test_rows_and_padding_of_a_load():
    program = column(PYNQ, "LOAD", **TILE, **PADS)
    move = program.work[0]
    width, height = 1 + 5 + 3, 1 + 3 + 2
    assert (move.rows, move.first, move.step, move.length, move.per_beat) == (3, 200, 18, 10, 1)  # 16 bytes: two beats
    assert move.lead + 2 * move.between + move.tail + 3 * 5 == width * height
    assert (move.low, move.high) == (7, 7 + width * height - 1)
    assert program.bytes_moved[0] == 3 * 5 * 16
    assert program.order == [[0], [1], []] and program.finish == 1


def test_one_row_has_nothing_between_rows():
    move = column(PYNQ, "LOAD", **(TILE | {"y_size": 1}), **PADS).work[0]
    assert (move.rows, move.between) == (1, 0) and move.lead + move.tail + 5 == 9 * 4


def test_rows_without_gaps_are_one_request():
    move = column(PYNQ, "LOAD", **(TILE | {"x_stride": 5}), **PADS).work[0]
    assert (move.rows, move.length) == (1, 30)
    assert move.lead + move.between + move.tail + 15 == 9 * 6


def test_entries_smaller_than_a_beat():
    move = column(TINY, "LOAD", **TILE).work[0]
    assert (move.first, move.step, move.length, move.per_beat) == (100, 9, 5, 2)


@pytest.mark.parametrize("change", [{"x_size": 0}, {"y_size": 0}])
def test_a_load_without_data(change):
    move = column(PYNQ, "LOAD", **(TILE | change), **PADS).work[0]
    assert (move.rows, move.lead) == (0, 1 if "x_size" in change else (5 + 4) * 3)


def test_a_store_goes_by_rows():
    work = column(PYNQ, "STORE", **(TILE | {"op": Op.STORE, "mem": Mem.OUT})).work[0]
    assert work == Write(rows=3, entries=5, base=7, first=200, step=18, length=10, per_beat=1, quantised=False)


@pytest.mark.parametrize("what", ["gemm", "dma"])
def test_skipped_work_takes_no_time(what):
    assert column(PYNQ, "LOAD", frozenset({"dma"}), **TILE).work[0].rows == 0
    loops = {"op": Op.GEMM, "uop_end": 1, "iter_out": 4, "iter_in": 4}
    assert (column(PYNQ, "GEMM", frozenset({what}), **loops).work[0] == PLACE) == (what == "gemm")


def test_a_program_without_an_end():
    with pytest.raises(ExecutionError, match="no FINISH"):
        columns(PYNQ, np.zeros((1, 2), np.uint64), no_uops)


def test_what_cannot_be_skipped():
    with pytest.raises(UnsupportedError, match="'fetch' cannot be skipped; gemm, alu, dma can"):
        column(PYNQ, "LOAD", frozenset({"fetch"}), **TILE)


def test_what_is_skipped_comes_in_any_collection():
    skipped = column(PYNQ, "LOAD", frozenset({"dma"}), **TILE).work[0]
    skip: Any
    for skip in (("dma",), ["dma", "gemm"], {"dma"}, "dma", iter(["dma"])):
        assert column(PYNQ, "LOAD", skip, **TILE).work[0] == skipped
    assert column(PYNQ, "LOAD", **TILE).work[0] != skipped


def test_a_unit_that_is_missing_has_no_entries():
    """Four ternary weights are a byte; blocks of one value would have entries of a quarter of it."""
    smallest = PYNQ.replace(block_in=1, block_out=1, inp_bytes=None, wgt_bytes=None, acc_bytes=None)
    assert column(smallest, "LOAD", **TILE).bytes_moved[0] == 15
