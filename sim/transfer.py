"""LOAD and STORE: two-dimensional copies between DRAM and scratchpads, with padding and width conversion.

Element i of an entry stands in bits [i * w, (i + 1) * w) of its bytes, little-endian, two's complement.
"""

from __future__ import annotations

import sys

import numpy as np

from ..hw.errors import AccessError
from ..hw.isa import Mem
from .state import Action, State, nothing

assert sys.byteorder == "little"  # accumulators are copied as bytes


def load_action(state: State, f: dict[str, int]) -> Action:
    """What executes the decoded LOAD or LOADP `f`. Raises `AccessError` where it leaves a memory."""
    mem, cfg = Mem(f["mem"]), state.cfg
    if not f["x_size"]:
        return nothing
    if mem == Mem.UOP:
        return _load_uops(state, f)
    rows, columns = f["y_size"], f["x_size"]
    width, height = f["x_pad_0"] + columns + f["x_pad_1"], f["y_pad_0"] + rows + f["y_pad_1"]
    if not height:
        return nothing
    first = f["sram_base"]
    state.check(mem, first, first + width * height - 1)
    bits = {Mem.INP: cfg.inp_bits, Mem.WGT: cfg.wgt_bits, Mem.ACC: 32, Mem.ACC8: 8}[mem]
    source = _dram(state, f, mem, rows, {32: np.int32, 8: np.int8}.get(bits, np.uint8))
    pad = _signed(f.get("pad_value", 0), min(bits, 8))
    memory = state.array(mem)
    lanes = memory.size // state.depth[mem]
    tile = memory.reshape(-1)[first * lanes : (first + width * height) * lanes].reshape(height, width * lanes)
    left, top = f["x_pad_0"] * lanes, f["y_pad_0"]
    inner = tile[top : top + rows, left : left + columns * lanes]
    padded = inner.size < tile.size

    def execute() -> None:
        if padded:
            tile.fill(pad)
        np.copyto(inner, unpack(source, bits) if bits < 8 else source)

    return execute


def store_action(state: State, f: dict[str, int]) -> Action:
    """What executes the decoded STORE `f`. Raises `AccessError` where it leaves a memory."""
    rows, columns, cfg = f["y_size"], f["x_size"], state.cfg
    if not rows or not columns:
        return nothing
    first = f["sram_base"]
    state.check(Mem.OUT, first, first + rows * columns - 1)
    source = state.acc[first : first + rows * columns].reshape(rows, -1)
    target = _dram(state, f, Mem.OUT, rows, np.uint8)
    if f["x_stride"] < columns:  # rows overlap: the later one is seen
        row_pairs = list(zip(target, source))
    else:
        row_pairs = [(target, source)]

    def execute() -> None:
        for out, values in row_pairs:
            np.copyto(out, pack(values, cfg.out_bits) if cfg.out_bits < 8 else values, casting="unsafe")

    return execute


def unpack(data: np.ndarray, bits: int) -> np.ndarray:
    """The `bits`-wide numbers in the bytes `data`, uint8 (..., n), sign-extended: int8 (..., n * 8 / bits)."""
    count = 8 // bits
    out = np.empty((*data.shape[:-1], data.shape[-1], count), np.int8)
    for i in range(count):
        out[..., i] = np.left_shift(data, 8 - bits * (i + 1)).view(np.int8) >> (8 - bits)
    return out.reshape(*data.shape[:-1], data.shape[-1] * count)


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """The low `bits` of the integers `values` (..., n) as bytes, uint8 (..., n * bits / 8)."""
    low = values.astype(np.uint8) & np.uint8((1 << bits) - 1)
    count = 8 // bits
    parts = low.reshape(*low.shape[:-1], -1, count)
    out = np.zeros(parts.shape[:-1], np.uint8)
    for i in range(count):
        out |= np.left_shift(parts[..., i], bits * i)
    return out


def _load_uops(state: State, f: dict[str, int]) -> Action:
    first, count = f["sram_base"], f["x_size"]
    state.check(Mem.UOP, first, first + count - 1)
    source = _dram(state, f, Mem.UOP, 1, np.uint32).reshape(-1)
    target = state.uop[first : first + count]

    def execute() -> None:
        np.copyto(target, source)
        state.uops_changed()

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
