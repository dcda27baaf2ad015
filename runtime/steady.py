"""Steady launches: what a launch does again and again, without the loads whose bytes are on chip from before.

Scratchpads keep their values from launch to launch. Where the launches of a program run in turn, a load of constants is
superfluous if its entries hold these very bytes already: no other instruction of the turn changed them since. A steady
launch leaves such loads out, and gets tokens of its own. runtime/proof/steady.py proves the result, by other means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..hw.config import UOP_BYTES, Config
from ..hw.errors import ProgramError
from ..hw.isa import FLAGS, MICRO_OPS, SCRATCHPADS, Op, entry_bytes, form_of, known_isa, room, row_of
from ..hw.units import channels
from .access import Access, dram_access, scratchpad_accesses
from .arrays import Array
from .launch import Launch, Origins, encode
from .steps import LaunchStep, Step, turns
from .tokens import Row, constants_between, insert_tokens, popped, pushed

_PIECE = 3  # entries of constants that are loaded while an operator waits for the one before: about 100 beats


def with_steady(steps: Sequence[Step]) -> list[Step]:
    """`steps`, in which launches that may find something on chip have a steady launch.

    Each is for runs with the same steps as the run before. A launch that takes part in runs with different steps has
    none, because what is on chip depends on the others.
    """
    found = dict[int, Launch | None]()
    for turn in turns(steps):
        for step, steady in zip(turn, steady_launches([step.launch for step in turn])):
            found[id(step)] = None if id(step) in found else steady
    return [replace(step, steady=found[id(step)]) if isinstance(step, LaunchStep) else step for step in steps]


def steady_launches(turn: Sequence[Launch]) -> list[Launch | None]:
    """For each launch of `turn`, which runs again and again, its steady launch; None where it has to load all.

    Raises `ProgramError` for micro-ops that no launch loads.
    """
    if not turn:
        return []
    chip = _OnChip(turn[0].cfg)
    recorded = [list(map(chip.execute, _rows(launch))) for launch in turn]
    return [chip.steady(launch, rows) for launch, rows in zip(turn, recorded)]


class _OnChip:
    """What each entry of the scratchpads holds: the number of its bytes if they are constant, else 0."""

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._held = {mem: np.zeros(room(cfg, mem), np.int64) for mem in SCRATCHPADS}
        self._words = {mem: np.zeros(room(cfg, mem), np.uint64) for mem in MICRO_OPS}
        self._numbers = dict[tuple[int, bytes], int]()
        self._accesses = dict[tuple[object, ...], list[Access]]()

    def execute(self, row: Row) -> Row:
        """Note what `row` leaves on chip. Returns it with the entries that it touches, and the bytes that it loads."""
        f = row.fields
        row.accesses = self._touched(f)
        loaded = self._loaded(row)
        for a in row.accesses:
            if a.write:
                self._held[a.mem][a.entries] = 0 if loaded is None else loaded
        mem, data = row_of(f["op"], f.get("mem")).loads, None if row.buffer is None else row.buffer.data
        if mem is not None and mem in MICRO_OPS and data is not None:
            first, last = f["dram_base"] * UOP_BYTES, (f["dram_base"] + f["x_size"]) * UOP_BYTES
            self._words[mem][f["sram_base"] : f["sram_base"] + f["x_size"]] = data[first:last].view("<u4")
        return row

    def steady(self, launch: Launch, rows: Sequence[Row]) -> Launch | None:
        """`launch`, recorded as `rows`, without the loads of what is on chip; None where there are none."""
        kept = list[Row]()
        for row in rows:
            if (needed := self._needed(row)) is not None:
                kept.append(self.execute(needed))
        if all(one is other for one, other in zip(kept, rows)) and len(kept) == len(rows):
            return None
        paths, finish = launch.known_origins.paths, kept.pop()
        ordered = insert_tokens(self.cfg, constants_between(kept, _PIECE), finish, lambda row: paths[row.origin][:1])
        origins = Origins(paths, launch.known_origins.macs, np.array([row.origin for row in ordered], np.int32))
        return encode(known_isa(self.cfg), launch.name, ordered, launch.buffers, origins)

    def _needed(self, row: Row) -> Row | None:
        """`row`, of a load of constants only the stretch that is not on chip; None where all is."""
        loaded = self._loaded(row)
        if loaded is None:
            return row
        (access,), f = row.accesses, row.fields
        wrong = np.flatnonzero(self._held[access.mem][access.entries] != loaded)
        if not len(wrong):
            return None
        first, count = int(wrong[0]), int(wrong[-1] - wrong[0]) + 1
        one = row_of(f["op"], f["mem"]).one_row or f["y_size"] == 1 or f["x_stride"] == f["x_size"]
        limit = known_isa(self.cfg).formats[row.format].fields["x_size"].limits[1]
        if count == len(loaded) or not one or count > limit:
            return row
        size = {"y_size": 1, "x_size": count, "x_stride": count}
        fields = f | size | {"sram_base": f["sram_base"] + first, "dram_base": f["dram_base"] + first}
        dram = None if row.dram is None else dram_access(self.cfg, fields)
        return replace(row, fields=fields, dram=dram)

    def _touched(self, f: dict[str, int]) -> list[Access]:
        executes, words = row_of(f["op"], f.get("mem")).executes, np.zeros(0, np.uint64)
        if executes is not None:
            kernel = slice(f["uop_bgn"], f["uop_end"])
            if not self._held[executes][kernel].all():
                what = f"micro-ops {f['uop_bgn']}..{f['uop_end'] - 1} of {executes.name}"
                raise ProgramError(f"{what} are executed, but no launch of the program loads them; record their load")
            words = self._words[executes][kernel]
        key = (*f.items(), words.tobytes())
        if key not in self._accesses:
            fields = known_isa(self.cfg).uop.decode(words[:, None])
            uops = np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1).astype(np.int64)
            self._accesses[key] = scratchpad_accesses(self.cfg, f, uops)
        return self._accesses[key]

    def _loaded(self, row: Row) -> Array | None:
        """The numbers of the bytes that `row` loads, one for each entry; None where it loads no constants."""
        f, buffer = row.fields, row.buffer
        kind = row_of(f["op"], f.get("mem"))
        padded = kind.pads and any(f[key] for key in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"))
        if kind.loads is None or kind.mem is None or padded or row.symbol or buffer is None or buffer.data is None:
            return None
        if not f["x_size"] or not row.accesses:
            return None
        size, numbers = entry_bytes(self.cfg, kind.mem), self._numbers
        rows, pitch = (1, 0) if kind.one_row else (f["y_size"], f["x_stride"])
        at = f["dram_base"] + pitch * np.arange(rows)[:, None] + np.arange(f["x_size"])
        entries = buffer.data[: len(buffer.data) // size * size].reshape(-1, size)[at.reshape(-1)]
        return np.array([numbers.setdefault((kind.mem.id, each.tobytes()), len(numbers) + 1) for each in entries])


def _rows(launch: Launch) -> list[Row]:
    """The instructions of `launch` without tokens, and without those that only carry tokens, FINISH the last.

    Raises `ProgramError` where they cannot run in their order in the program: then they were not recorded in it.
    """
    isa, symbols = known_isa(launch.cfg), launch.patches.symbols
    every, tokens, found = channels(launch.cfg), dict.fromkeys(channels(launch.cfg), 0), list[Row]()
    for k, f in enumerate(isa.decode(launch.insn)):
        queue, form = isa.queue(f), form_of(f)
        assert form is not None
        for channel in popped(every, queue, f):
            tokens[channel] -= 1
            if tokens[channel] < 0:
                what = f"instruction {k} waits for a token that a later one gives"
                raise ProgramError(f"launch {launch.name!r}: {what}; record it in an order in which it can run")
        for channel in pushed(every, queue, f):
            tokens[channel] += 1
        f = {**f, **dict.fromkeys(FLAGS, 0)}
        kind, symbol = row_of(f["op"], f.get("mem")), symbols.get(k)
        moves, executes = f.get("x_size") and not kind.empty, f.get("iter_out") and f["iter_in"]
        if moves or executes or f["op"] == Op.FINISH:
            buffer = launch.buffers[int(launch.reloc[k])] if launch.reloc[k] >= 0 else None
            dram = None if kind.loads in MICRO_OPS else dram_access(launch.cfg, f, symbol)
            found.append(Row(form, queue, f, [], buffer, dram, int(launch.known_origins.of[k]), symbol))
    return found
