"""Launches as accesses to registers, the same for a board and for the simulated circuit.

The error registers become exceptions that name the instruction and the cause.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..hw.config import Config
from ..hw.errors import AccessError, DeadlockError, ExecutionError, TokenError
from ..hw.isa import Isa, Op
from ..hw.metrics import counters
from ..hw.regs import Command, Error, Status
from ..hw.units import Channel, Queue, channels, queues, units
from .access import dram_access
from .arrays import Array
from .device import Stats
from .tokens import left_over_text, popped

_LOOKS = 100  # reads of CONTROL, one per millisecond, until a reset has ended


class Registers(Protocol):
    """The registers of one accelerator by their names (hw/regs.py)."""

    def read(self, name: str, /) -> int:
        """The value of a register."""
        ...

    def write(self, name: str, value: int, /) -> None:
        """Set a register."""
        ...


class Session:
    """An accelerator of `cfg` with its `registers`; it gives up after `watchdog` cycles without progress."""

    def __init__(self, cfg: Config, registers: Registers, *, watchdog: int):
        self.cfg, self.registers, self.watchdog = cfg, registers, watchdog

    def identity(self) -> tuple[int, int]:
        """(VERSION, fingerprint), as the accelerator says."""
        version, low, high = (self.registers.read(name) for name in ("VERSION", "FINGERPRINT_LO", "FINGERPRINT_HI"))
        return version, high << 32 | low

    def run(self, insn: Array, address: int, counts: Stats, wait: Callable[[], int]) -> Stats:
        """Execute the instructions `insn`, uint64 (n, 2), that stand at byte `address`.

        Returns `counts`, the counts of `insn`, with cycles and counters. `wait` returns CONTROL when the accelerator is
        done, and raises where it takes too long. Raises the error that the error registers stand for (`explain`).
        """
        write = self.registers.write
        write("INSN_COUNT", len(insn))
        write("INSN_ADDR_LO", address & 0xFFFFFFFF)
        write("INSN_ADDR_HI", address >> 32)
        write("WATCHDOG", self.watchdog)
        write("CONTROL", Command.START)
        status, read = wait(), self.registers.read
        counted = self._counted()
        if status & Status.ERROR:
            raise explain(self.cfg, insn, read("ERROR"), read("ERROR_INSN"), taken(self.cfg, counted))
        return counts + Stats(cycles=read("CYCLES"), counters=counted)

    def waiting(self, insn: Array) -> tuple[str, int | None]:
        """(text of what each queue waits for, first instruction that waits) of a run of `insn` that does not end."""
        return waiting(self.cfg, insn, taken(self.cfg, self._counted()))

    def reset(self) -> bool:
        """Stop the run. Returns whether the accelerator has ended its accesses to memory."""
        self.registers.write("CONTROL", Command.RESET)
        for _ in range(_LOOKS):
            if not self.registers.read("CONTROL") & Status.RUNNING:
                return True
            time.sleep(1e-3)
        return False

    def _counted(self) -> Counter[str]:
        return Counter({name: self.registers.read(name) for name in counters(self.cfg)})


def explain(cfg: Config, insn: Array, code: int, index: int, taken: Sequence[int]) -> ExecutionError:
    """The error that the registers ERROR = `code` and ERROR_INSN = `index` stand for.

    `insn`, uint64 (n, 2), is the program; `taken` counts the instructions that each queue has issued.
    """
    program = _Stopped(cfg, insn, taken)
    at = program.at(index)
    if code == Error.UNDECODABLE:
        return ExecutionError(program.refused(index), index if index < len(insn) else None)
    if code in (Error.READ_RESPONSE, Error.WRITE_RESPONSE):
        verb = "read" if code == Error.READ_RESPONSE else "write"
        return AccessError(f"{at}: the bus answered a {verb} with an error{program.reached(index)}", index)
    if code == Error.RANGE:
        return AccessError(f"{at}: reaches beyond a scratchpad", index)
    if code == Error.TOKENS_LEFT:
        return program.left_over()
    if code == Error.WATCHDOG:
        text, first = program.waiting()
        return DeadlockError(f"deadlock: {text}", first)
    return ExecutionError(f"{at}: unknown error code {code}", index)


def waiting(cfg: Config, insn: Array, taken: Sequence[int]) -> tuple[str, int | None]:
    """(text: what each queue waits for; the first instruction that waits). Arguments as of `explain`."""
    return _Stopped(cfg, insn, taken).waiting()


def taken(cfg: Config, counters: Mapping[str, int]) -> list[int]:
    """Instructions that each queue has issued, from the accelerator's `counters` by register name."""
    return [counters[unit.counter("INSNS")] for unit in units(cfg)]


class _Stopped:
    """A program that stopped after its queues issued `taken` instructions each."""

    def __init__(self, cfg: Config, insn: Array, taken: Sequence[int]):
        self.cfg, self.isa, self.channels = cfg, Isa(cfg), channels(cfg)
        self.insns = self.isa.decode(insn)
        self.queues: dict[Queue, list[int]] = {queue: [] for queue in queues(cfg)}
        for k, f in enumerate(self.insns):
            if not self.isa.undecodable(f):
                self.queues[self.isa.queue(f)].append(k)
        self.taken = dict(zip(queues(cfg), taken))

    def at(self, k: int) -> str:
        shown = f" ({self.isa.disassemble(self.insns[k])})" if k < len(self.insns) else ""
        return f"instruction {k}{shown}"

    def refused(self, k: int) -> str:
        """The reason why instruction `k` was not accepted."""
        at, last = self.at(k), len(self.insns) - 1
        if k > last:
            return "the program has no FINISH: it has no instructions"
        reason = self.isa.undecodable(self.insns[k])
        if not reason and self.insns[k]["op"] == Op.FINISH:
            reason = f"{last - k} instructions follow FINISH"
        if not reason and k == last:
            return f"the program has no FINISH; its last instruction is {at}"
        return f"{at}: {reason or 'this accelerator does not execute it'}"

    def reached(self, k: int) -> str:
        """The DRAM bytes that instruction `k` touches."""
        access = dram_access(self.cfg, self.insns[k]) if k < len(self.insns) else None
        if access is None:
            return ""
        end = access.start + (access.rows - 1) * access.pitch + access.nbytes
        return f"; it touches DRAM bytes {access.start:#x}..{end - 1:#x}"

    def tokens(self, channel: Channel) -> int:
        """Tokens that `channel` holds after every issued instruction has been executed."""
        source, target = channel
        pushed = sum(self.insns[k][channel.push] for k in self.queues[source][: self.taken[source]])
        return pushed - sum(self.insns[k][channel.pop] for k in self.queues[target][: self.taken[target]])

    def left_over(self) -> ExecutionError:
        """The error of tokens that no instruction pops."""
        channel = next((c for c in self.channels if self.tokens(c) > 0), None)
        if channel is None:
            return TokenError(
                "the accelerator reports tokens left over, but the program pops every token that it pushes"
            )
        pushers = self.queues[channel.source]
        last = max(k for k in pushers if self.insns[k][channel.push])
        return TokenError(left_over_text(channel, self.tokens(channel), self.at(last)), last)

    def waiting(self) -> tuple[str, int | None]:
        """(text: what each queue waits for; the first instruction that waits)."""
        parts, heads = list[str](), list[int]()
        for queue, mine in self.queues.items():
            if self.taken[queue] >= len(mine):
                parts.append(f"{queue.name} is empty")
                continue
            k = mine[self.taken[queue]]
            missing = [str(c) for c in popped(self.channels, queue, self.insns[k]) if self.tokens(c) <= 0]
            what = f"a token {' and '.join(missing)}" if missing else "the instructions before it"
            parts.append(f"{queue.name} waits for {what} at {self.at(k)}")
            heads.append(k)
        return "; ".join(parts), min(heads, default=None)
