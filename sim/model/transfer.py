"""LOAD and STORE, the fast form of sim/spec.py's: one strided copy between views of DRAM and scratchpad.

Padding is a fill of the whole tile before the copy, width conversion is numpy's cast, and requantisation takes all rows
at once. Elements of fewer than 8 bits are unpacked and packed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from ...hw.config import GROUP_BITS, TERNARY_BITS
from ...hw.errors import AccessError
from ...hw.isa import MICRO_OPS, PAR, Mem, mem_of, scratchpad_of
from ...hw.rounding import requantise
from ...runtime.buffer import pack_bits, unpack_bits
from ...runtime.layout import unpack_four_bits
from .state import Action, State, nothing

assert sys.byteorder == "little"  # accumulators are copied as bytes


def load_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded LOAD or LOADP `f`. Raises `AccessError` where it leaves a memory."""
    mem, cfg = mem_of(f["op"], f["mem"]), state.cfg
    if not f["x_size"]:
        return nothing
    if mem in MICRO_OPS:
        return _load_uops(state, mem, f)
    if mem == Mem.PAR:
        return _load_par(state, f)
    rows, columns = f["y_size"], f["x_size"]
    width, height = f["x_pad_0"] + columns + f["x_pad_1"], f["y_pad_0"] + rows + f["y_pad_1"]
    if not height:
        return nothing
    first = f["sram_base"]
    state.check(mem, first, first + width * height - 1)
    widths = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.WGT4: GROUP_BITS, Mem.TWGT: TERNARY_BITS}
    widths |= {Mem.ACC: 32, Mem.ACC8: 8}
    bits = widths[mem]
    source = _dram(state, f, mem, rows, {32: np.int32, 8: np.int8}.get(bits, np.uint8))
    pad = _signed(f.get("pad_value", 0), min(widths[scratchpad_of(mem)], 8))
    memory = state.array(mem)
    lanes = memory.size // state.depth[mem]
    tile = memory.reshape(-1)[first * lanes : (first + width * height) * lanes].reshape(height, width * lanes)
    left, top = f["x_pad_0"] * lanes, f["y_pad_0"]
    inner = tile[top : top + rows, left : left + columns * lanes]
    padded, last = inner.size < tile.size, first + width * height - 1
    before = state.sums.settle if memory is state.acc else state.operands[scratchpad_of(mem)].changed

    def execute() -> None:
        before(first, last)
        if padded:
            tile.fill(pad)
        if mem == Mem.WGT4:
            entries = source.reshape(rows, columns, cfg.wgt4_entry_bytes)
            inner[...] = unpack_four_bits(entries, cfg).reshape(inner.shape)
        else:
            inner[...] = unpack_bits(source.reshape(-1), bits).reshape(inner.shape) if bits < 8 else source
        if mem == Mem.TWGT:
            np.multiply(inner, inner & 1, inner)  # -2, where bit 0 is not set, is 0, too

    return execute


def store_action(state: State, f: dict[str, int]) -> Action:
    """The action of the decoded STORE `f`. Raises `AccessError` where it leaves a memory."""
    rows, columns, mem = f["y_size"], f["x_size"], mem_of(f["op"], f["mem"])
    if not rows or not columns:
        return nothing
    first = f["sram_base"]
    state.check(mem, first, first + rows * columns - 1)
    source = state.acc[first : first + rows * columns].reshape(rows, -1)
    target = _dram(state, f, mem, rows, np.uint8)
    convert = _requantiser(state, f) if mem == Mem.OUTQ else _truncate(state.cfg.out_bits)
    overlap = f["x_stride"] < columns  # of rows: the later one stays

    def execute() -> None:
        state.sums.settle(first, first + rows * columns - 1)
        values = convert(source)
        if not overlap:
            target[...] = values
            return
        for out, low in zip(target, values):
            out[...] = low

    return execute


def _truncate(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function from accumulators (rows, elements) to the bytes of their low `bits`."""
    if bits == 8:
        return lambda values: values
    return lambda values: pack_bits(values, bits).reshape(len(values), -1)


def _requantiser(state: State, f: dict[str, int]) -> Callable[[np.ndarray], np.ndarray]:
    """A function from accumulators (rows, elements) to int8 with the parameters of each row."""
    rows, first, step, block = f["y_size"], f["par_base"], f["par_step"], state.cfg.block_out
    state.check(Mem.PAR, first, first + (rows - 1) * step)
    entries = first + step * np.arange(rows if step else 1)

    def convert(values: np.ndarray) -> np.ndarray:
        p = {name: column[entries][:, None, :] for name, column in state.par.items()}
        total = (values.reshape(rows, -1, block) + p["bias"]).astype(np.int32)
        scale, limits = (p["multiplier"], p["exponent"]), (p["zero_point"], p["low"], p["high"])
        return requantise(total, *scale, *limits, p["mode"]).reshape(rows, -1)

    return convert


def _load_uops(state: State, mem: Mem, f: dict[str, int]) -> Action:
    first, count = f["sram_base"], f["x_size"]
    state.check(mem, first, first + count - 1)
    source = _dram(state, f, mem, 1, np.uint32).reshape(-1)
    target, changed = state.kernels[mem].words[first : first + count], state.kernels[mem].changed

    def execute() -> None:
        np.copyto(target, source)
        changed()

    return execute


def _load_par(state: State, f: dict[str, int]) -> Action:
    rows, columns, first = f["y_size"], f["x_size"], f["sram_base"]
    if not rows:
        return nothing
    end, cfg = first + rows * columns, state.cfg
    if end > state.room:
        raise AccessError(f"PAR entries {first}..{end - 1} are outside 0..{state.room - 1}")
    source = _dram(state, f, Mem.PAR, rows, np.uint32)
    cut = max(0, min(end, cfg.par_entries) - first)  # entries of parameters; those of tables follow

    def execute() -> None:
        entries = source.reshape(rows * columns, -1)
        words = np.zeros((cut * cfg.block_out, 4), np.uint32)
        words[:, :3] = entries[:cut].reshape(-1, 3)
        for name, values in PAR.decode(words.view(np.uint64)).items():
            state.par[name][first : first + cut] = values.reshape(cut, cfg.block_out)
        parts = state.tables.reshape(-1, cfg.table_words)
        parts[first + cut - cfg.par_entries :][: len(entries) - cut] = entries[cut:, : cfg.table_words].view(np.int32)

    return execute


def _dram(state: State, f: dict[str, int], mem: Mem, rows: int, dtype: type) -> np.ndarray:
    """The rows in DRAM as a view, `dtype` (rows, elements of a row). Raises `AccessError` beyond its end."""
    size, item = state.entry_bytes[mem], np.dtype(dtype).itemsize
    start, pitch, length = f["dram_base"] * size, f["x_stride"] * size, f["x_size"] * size
    end = start + (rows - 1) * pitch + length
    if rows and end > len(state.dram):
        raise AccessError(f"DRAM bytes {start:#x}..{end - 1:#x} are outside 0..{len(state.dram) - 1:#x}")
    return np.ndarray((rows, length // item), dtype, state.dram.data, start if rows else 0, (pitch, item))


def _signed(value: int, bits: int) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
