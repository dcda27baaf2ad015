"""Proves that steady launches do what their launches do, whatever left out loads would have brought.

A turn is walked with all loads and, after it, once more both ways: with all loads, and with the steady launches. Both
walks note what every entry of the scratchpads holds, constant bytes or the result of one instruction of one walk, and
which store wrote each byte of DRAM last. An instruction must find the same in both, and both must leave the same: then
so do all later turns. What an instruction touches (runtime/access.py) is the only code that it shares with the pass
that leaves loads out (runtime/steady.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ...hw.errors import SteadyError
from ...hw.isa import FLAGS, SCRATCHPADS, Mem, Op, entry_bytes, known_isa, room, row_of
from ..access import dram_access, dram_cells, dram_granule, scratchpad_accesses
from ..arrays import Array
from ..launch import WRITABLE, Launch
from .order import Instructions, Order

_NONE = np.zeros((0, 3), np.int64)


def check_turn(turn: Sequence[tuple[Launch, Launch]]) -> None:
    """Check the (launch, its steady launch) of a turn, in which launches run one after the other, again and again.

    The launches themselves are proved by `verify`, with memory. A launch that is its own steady launch loads all.
    Raises `SteadyError` that names the instruction.
    """
    walks = [(_Walk(launch), _Walk(steady)) for launch, steady in turn]
    if all(launch is steady for launch, steady in turn):
        return
    numbers, first = dict[bytes, int](), -1
    every = {mem: np.zeros(room(turn[0][0].cfg, mem), np.int64) for mem in SCRATCHPADS}
    for whole, _ in walks:
        whole.run(every, numbers, first - np.arange(len(whole.insns)))
        first -= len(whole.insns)
    fewer = {mem: held.copy() for mem, held in every.items()}
    for whole, short in walks:
        same = _matched(whole, short)
        names = first - np.arange(len(whole.insns))
        first -= len(whole.insns)
        found = whole.run(every, numbers, names)
        for k, digest in short.run(fewer, numbers, names[same]).items():
            if same[k] >= 0 and found[int(same[k])] != digest:
                short.refuse(k, "finds other values on chip or in DRAM than after all loads")
        for mem in SCRATCHPADS:
            if len(wrong := np.flatnonzero(every[mem] != fewer[mem])):
                what = f"{mem.name} entry {wrong[0]} holds other values at its end than after all loads"
                raise SteadyError(f"launch {whole.launch.name!r}: its steady launch is not the same: {what}")


class _Walk:
    """The instructions of `launch`, in an order in which they may run."""

    def __init__(self, launch: Launch):
        self.launch, self.isa = launch, known_isa(launch.cfg)
        self.program = Instructions(launch.cfg, launch.insn, launch.patches.symbols, launch.origins)
        self.insns = self.isa.decode(launch.insn)
        self._order = Order(self.program).topological

    def refuse(self, k: int, why: str) -> None:
        """Raise the error of instruction `k` of a steady launch."""
        what = f"its steady launch is not the same: {self.program.name(k)} {why}; compile it again"
        raise SteadyError(f"launch {self.launch.name!r}: {what}", k)

    def works(self, k: int) -> bool:
        """Whether instruction `k` does more than to carry tokens."""
        f = self.insns[k]
        return bool(f.get("x_size") or f.get("iter_out") and f["iter_in"] or f["op"] == Op.FINISH)

    def constant(self, k: int) -> list[bytes] | None:
        """The bytes of each entry that instruction `k` loads; None where it loads no constants."""
        f, symbol = self.insns[k], self.launch.patches.symbols.get(k)
        row, number = row_of(f["op"], f.get("mem")), int(self.launch.reloc[k])
        data = self.launch.buffers[number].data if number >= 0 else None
        if row.loads is None or row.mem is None or data is None or symbol is not None or not f["x_size"]:
            return None
        if row.pads and (f["y_pad_0"] or f["y_pad_1"] or f["x_pad_0"] or f["x_pad_1"]):
            return None
        size, access = entry_bytes(self.launch.cfg, row.mem), dram_access(self.launch.cfg, f)
        spans: list[list[int]] = [] if access is None else access.spans().tolist()
        head = bytes([row.mem.id])
        return [head + data[at : at + size].tobytes() for start, end in spans for at in range(start, end, size)]

    def varying(self, at: Array) -> list[int]:
        """The instructions among `at` that work, loads of constants aside."""
        return [k for k in at.tolist() if self.works(k) and self.constant(k) is None]

    def run(self, held: dict[Mem, Array], numbers: dict[bytes, int], names: Array) -> dict[int, bytes]:
        """Note in `held` what entries hold: `numbers` of constant bytes, or `names` of instructions that wrote them.

        Returns a digest of what each instruction finds on chip and, of this launch's stores, in DRAM.
        """
        found, cfg, granule = dict[int, bytes](), self.launch.cfg, dram_granule(self.launch.cfg)
        # Both launches have their stores in one order, that of their queue: then the last store of a cell tells of all
        # before it, even if its symbol decides whether it writes the cell.
        stored = {
            n: np.zeros(-(-buffer.nbytes // granule), np.int64)
            for n, buffer in enumerate(self.launch.buffers)
            if buffer.kind in WRITABLE
        }
        texts = {number: data for data, number in numbers.items()}
        for k in self._order:
            f = self.insns[k]
            if not self.works(k):
                continue
            row, uops = row_of(f["op"], f.get("mem")), _NONE
            if row.executes is not None:
                kernel = held[row.executes][f["uop_bgn"] : f["uop_end"]].tolist()
                if not all(number in texts for number in kernel):
                    self.refuse(k, "executes micro-ops that no launch of the turn loads")
                words = np.frombuffer(b"".join(texts[number][1:] for number in kernel), "<u4").astype(np.uint64)
                fields = self.isa.uop.decode(words[:, None])
                uops = np.stack([fields["dst"], fields["src"], fields["wgt"]], axis=1).astype(np.int64)
            accesses = scratchpad_accesses(cfg, f, uops)
            reads = [held[a.mem][a.entries].tobytes() for a in accesses if not a.write or a.updates]
            last = stored.get(int(self.launch.reloc[k]))
            dram = None if last is None else dram_access(cfg, f, self.launch.patches.symbols.get(k))
            if last is not None and dram is not None:
                cells = dram_cells(dram, granule)
                if dram.write:
                    last[cells] = names[k]
                else:
                    reads.append(last[cells].tobytes())
            found[k] = hashlib.blake2b(b"".join(reads), digest_size=16).digest()
            loaded = self.constant(k)
            for data in loaded or ():
                texts[numbers.setdefault(data, len(numbers) + 1)] = data
            for a in accesses:
                if a.write:
                    held[a.mem][a.entries] = names[k] if loaded is None else [numbers[data] for data in loaded]
        return found


def _matched(whole: _Walk, short: _Walk) -> Array:
    """For each instruction of `short` the same one of `whole`; -1 for loads of constants, and where nothing works.

    Raises `SteadyError` where the others differ, but for their tokens.
    """
    same, launch, steady = np.full(len(short.insns), -1, np.int64), whole.launch, short.launch
    if launch.cfg != steady.cfg or [*map(id, launch.buffers)] != [*map(id, steady.buffers)]:
        raise SteadyError(f"launch {launch.name!r}: its steady launch has another configuration, or other buffers")
    for mine, its in zip(whole.program.at, short.program.at):
        all_of_mine, all_of_its = whole.varying(mine), short.varying(its)
        for k, other in zip(all_of_mine, all_of_its):
            if _facts(whole, k) != _facts(short, other):
                short.refuse(other, f"is not its {whole.program.name(k)}")
            same[other] = k
        for walk, left in ((whole, all_of_mine[len(all_of_its) :]), (short, all_of_its[len(all_of_mine) :])):
            if left:
                walk.refuse(left[0], "is missing there" if walk is whole else "is only there")
    return same


def _facts(walk: _Walk, k: int) -> object:
    fields = {name: value for name, value in walk.insns[k].items() if name not in FLAGS}
    return fields, int(walk.launch.reloc[k]), walk.launch.patches.symbols.get(k)
