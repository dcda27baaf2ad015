"""What a run asks of the buses: the lengths of all bursts, which depend on addresses alone and on no cycle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ...hw.config import Config
from ...hw.isa import INSN_BYTES, Mem
from ...hw.rtl.latencies import BURST_BEATS
from ...hw.stages import bus_bits
from .program import Columns, Move, Write, columns


def burst_lengths(cfg: Config, words: np.ndarray, address: int, skip: Iterable[str] = ()) -> dict[str, dict[str, int]]:
    """The histograms `read_bursts` and `write_bursts` of the instructions `words`, uint64 (n, 2), at byte `address`.

    `skip`: as of `columns`.
    """
    program = columns(cfg, words, lambda first, count: np.zeros(count, np.uint32), {*skip, "gemm", "alu"})
    beat = cfg.axi_bits // 8
    first = address // beat
    fetched = (first, -(-(address + len(words) * INSN_BYTES) // beat) - first)
    loads, stores = _transfers(cfg, program)
    return {"read_bursts": _lengths([fetched, *loads]), "write_bursts": _lengths(stores)}


def _transfers(cfg: Config, program: Columns) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(first beat, beats) of the requests of all rows, of loads and of stores."""
    loads, stores = [], []
    for work in program.work:
        if isinstance(work, Move):
            wide = bus_bits(cfg, Mem(work.mem)) // cfg.axi_bits
            loads += [(wide * first, wide * beats) for first, beats in _rows(work)]
        elif isinstance(work, Write) and work.length:
            stores += _rows(work)
    return loads, stores


def _rows(work: Move | Write) -> list[tuple[int, int]]:
    units = range(work.first, work.first + work.rows * work.step, work.step) if work.step else [work.first] * work.rows
    per = work.per_beat
    return [(unit // per, (unit % per + work.length + per - 1) // per) for unit in units]


def _lengths(requests: list[tuple[int, int]]) -> dict[str, int]:
    """How many bursts of each length the `requests` are cut into: each up to the next multiple of `BURST_BEATS`."""
    found: Counter[int] = Counter()
    for first, beats in requests:
        head = min(beats, -first % BURST_BEATS)
        whole, tail = divmod(beats - head, BURST_BEATS)
        found.update({head: 1})
        found.update({BURST_BEATS: whole})
        found.update({tail: 1})
    return {str(beats): found[beats] for beats in sorted(found) if beats and found[beats]}
