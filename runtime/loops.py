"""Loops over micro-ops as instructions: chooses the two loops of each, and cuts kernels that are too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..hw.config import Config
from ..hw.errors import CapacityError, EncodingError, ProgramError
from ..hw.isa import ITER_BITS, OPERATIONS, Isa, Mem, Op, depth
from .buffer import integers
from .uop import encode_uops, grid, merge_loops

MAX_TRIPS = (1 << ITER_BITS) - 1
Loops = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True)
class Kernel:
    """Loops [(extent, dst, src, wgt)] over micro-ops (n, 3), and the fields that all its instructions share."""

    format: str
    loops: Loops
    uops: np.ndarray
    fields: dict[str, int]


def pieces(kernel: Kernel, cfg: Config) -> Iterator[tuple[Loops, np.ndarray]]:
    """The instructions of `kernel` in order: (at most two loops, micro-ops that fit the buffer) of each.

    Raises `ProgramError` for a kernel that does nothing.
    """
    if not len(kernel.uops) or any(extent < 1 for extent, *_ in kernel.loops):
        raise ProgramError(f"{kernel.format.lower()}: loops and micro-ops must run at least once")
    free = order_free(kernel)
    instruction, inner = _divided(kernel.loops, free, cfg)
    uops = kernel.uops if inner is None else (inner[:, None, :] + kernel.uops[None]).reshape(-1, 3)
    if len(uops) <= cfg.uop_depth or free or not instruction:
        for k in range(0, len(uops), cfg.uop_depth):
            yield instruction, uops[k : k + cfg.uop_depth]
        return
    extent, *steps = instruction[0]
    for trip in range(extent):  # unrolled: only then may a kernel be cut without changing the order
        yield from pieces(replace(kernel, loops=instruction[1:], uops=uops + trip * np.array(steps)), cfg)


@lru_cache(1024)  # most kernels of a program have the loops of others
def _divided(loops: Loops, free: bool, cfg: Config) -> tuple[Loops, np.ndarray | None]:
    """(At most two loops for the instruction, what the others add to micro-ops, int64 (n, 3), if there are any)."""
    instruction, rest = choose_loops(merge_loops(loops, MAX_TRIPS), free, cfg)
    return instruction, grid([tuple(loop) for loop in rest], (0, 0, 0)) if rest else None


def order_free(kernel: Kernel) -> bool:
    """True where the iterations of `kernel` may run in any order."""
    f = kernel.fields
    if kernel.format != "ALU":
        return not f.get("overwrite") or _injective(kernel)
    if f["use_imm"]:
        return True
    all_indices = grid([tuple(loop) for loop in kernel.loops], (0, 0, 0))[:, None, :2] + kernel.uops[None, :, :2]
    dst, src = all_indices[..., 0].reshape(-1), all_indices[..., 1].reshape(-1)
    apart = not np.isin(dst, src).any()
    commutes = f["op"] == Op.ALU and OPERATIONS[f["alu_op"]].order_free
    return apart and (commutes or len(np.unique(dst)) == len(dst))


def _injective(kernel: Kernel) -> bool:
    first = kernel.uops[:, 0]
    return _all_differ(tuple((n, d) for n, d, *_ in kernel.loops), (first - first[0]).tobytes())


@lru_cache(1024)  # kernels of one shape differ in their first entry alone
def _all_differ(loops: tuple[tuple[int, int], ...], starts: bytes) -> bool:
    """True if loops (extent, step) over int64 `starts` name no index twice."""
    found = grid([*loops], (0,)) + np.frombuffer(starts, np.int64)
    return len(np.unique(found)) == found.size


def choose_loops(loops: Loops, free: bool, cfg: Config) -> tuple[Loops, list[tuple[int, int, int, int]]]:
    """(at most two loops for the instruction, the others, which become micro-ops).

    Where the order is `free`, the longest loops go to the instruction; otherwise the outermost that fit its fields.
    """
    limits = tuple(depth(cfg, mem) for mem in (Mem.ACC, Mem.INP, Mem.WGT))
    fits = [loop[0] <= MAX_TRIPS and all(0 <= s < m for s, m in zip(loop[1:], limits)) for loop in loops]
    real = [k for k, loop in enumerate(loops) if loop[0] > 1]
    if free:
        chosen = sorted(sorted((k for k in real if fits[k]), key=lambda k: (-loops[k][0], k))[:2])
    else:
        chosen = []
        for k in range(len(loops)):
            if not fits[k] or len(chosen) == 2:
                break
            chosen.append(k)
    return tuple(loops[k] for k in chosen), [loop for k, loop in enumerate(loops) if k not in chosen]


def loop_fields(kernel: Kernel, loops: Loops) -> dict[str, int]:
    """The fields of an instruction of `kernel` with `loops`, at most two, except those of its micro-ops."""
    outer, inner = ((1, 0, 0, 0),) * (2 - len(loops)) + loops
    fields = dict(kernel.fields, iter_out=outer[0], iter_in=inner[0])
    for k, index in enumerate(("dst", "src") if kernel.format == "ALU" else ("dst", "src", "wgt"), 1):
        fields |= {f"{index}_out": outer[k], f"{index}_in": inner[k]}
    return fields


def encoded(kernel: Kernel, isa: Isa, uops: np.ndarray) -> np.ndarray:
    """The words of `uops`. Raises `CapacityError` for an index that the configuration does not have."""
    try:
        return encode_uops(isa.uop, uops)
    except EncodingError as exc:
        name, rows = kernel.format.lower(), isa.cfg.wgt_depth
        what = f"beyond a scratchpad of {isa.cfg.name}"
        if name == "dwgemm" and uops[:, 2].max() >= rows:
            counted = "groups of weight rows" if kernel.fields.get("extra_taps") else "weight rows"
            what = f"beyond the {rows} {counted} of a micro-op (steps of loops reach the others)"
        raise CapacityError(f"{name} reaches {what}: {exc}") from None


def uop_array(uops: np.ndarray, columns: int) -> np.ndarray:
    """`uops` as int64 (n, `columns`). Raises `ProgramError` for another shape or dtype."""
    array = np.asarray(uops)
    if array.ndim != 2 or array.shape[1] != columns or array.dtype.kind not in "iu":
        raise ProgramError(f"micro-ops must be integers of shape (n, {columns}), not {array.dtype} {array.shape}")
    return array.astype(np.int64)


def need_extensions(cfg: Config, names: Iterable[str]) -> None:
    """Raise `ProgramError` where `cfg` lacks one of the extensions `names`."""
    for name in names:
        if name not in cfg.extensions:
            raise ProgramError(f"extension {name} is not in configuration {cfg.name}; choose one that has it")


def check_taps(cfg: Config, taps: int, depthwise: bool) -> dict[str, int]:
    """The field of `taps` taps of GEMM, or of DWGEMM. Raises `ProgramError` for a number that it does not have."""
    (taps,) = integers("gemm: taps", (taps,), 1)
    if taps == 1:
        return {}
    need_extensions(cfg, ["depthwise_rows"])
    if not depthwise or not 1 < taps <= cfg.row_taps:
        raise ProgramError(f"gemm: taps = {taps}: {cfg.name} takes 1 to {cfg.row_taps}, and with depthwise alone")
    return {"extra_taps": taps - 1}
