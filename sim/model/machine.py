"""The behavioural model: the fast form of sim/spec.py, which defines the instruction set.

Decoding and checks run once per program and once per kind of instruction, and the order is kept: a program that
runs again, also with a few other addresses, is a list of ready actions. An action is a whole instruction as a few array
operations: LOAD and STORE in sim/model/transfer.py, GEMM and DWGEMM in sim/model/gemm.py, TERNARY in
sim/model/ternary.py, ALU in sim/model/alu.py; sim/model/tokens.py finds the order from queues and tokens.

Unlike the definition, an instruction that fails changes nothing: its indices are checked before it executes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.errors import AccessError, ExecutionError, InputError
from ...hw.isa import FLAGS, Op, Queue
from ...hw.units import channels
from ...runtime.device import Stats, count_work
from ..lru import Lru
from ..memory import program_bytes
from .alu import alu_action
from .gemm import gemm_action
from .state import Action, State
from .ternary import ternary_action
from .tokens import Choice, Node, at_random, node, schedule
from .transfer import load_action, store_action

_KIND_FIELDS = ("op", "mem", "alu_op", "use_imm", "reset", "overwrite", *FLAGS)

_PROGRAM_INSNS = 1 << 15  # instructions kept ready to run again


class Model:
    """An accelerator of configuration `cfg` on the memory `dram`, uint8 (n,), whose index is the byte address.

    With `choose` (see `schedule`), which `rng` makes a random one, the queues interleave in any legal way; without it,
    the instruction that is first in the program executes first. A program without races gives the same result either
    way.
    """

    def __init__(
        self, cfg: Config, dram: np.ndarray, *, rng: np.random.Generator | None = None, choose: Choice | None = None
    ):
        self.cfg, self.choose = cfg, choose if rng is None else at_random(rng)
        self.state = State(cfg, _memory(dram))
        self._programs: Lru[_Program] = Lru(_PROGRAM_INSNS)
        self._latest: _Program | None = None

    @property
    def dram(self) -> np.ndarray:
        """The memory; it may be replaced between runs."""
        return self.state.dram

    @dram.setter
    def dram(self, dram: np.ndarray) -> None:
        self.state.dram = _memory(dram)
        self._programs.clear()  # they hold views of the old memory
        self._latest = None

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute `insn_count` instructions from byte address `insn_address` on, the last of which is FINISH.

        Raises `ExecutionError` (undecodable, FINISH missing or not last), `DeadlockError`, `TokenError` or
        `AccessError`; each text names the instruction by index and disassembly. All but `AccessError` are raised before
        anything executes.
        """
        words = program_bytes(self.dram, insn_address, insn_count)
        program = self._programs.get(words, lambda: self._decoded(words), lambda p: len(p.insns))
        self._latest = program
        if self.choose is not None:
            order = schedule(self.cfg, program.nodes, program.at, self.choose)
        elif program.order:
            order = program.order
        else:
            order = program.order = schedule(self.cfg, program.nodes, program.at)
        self._execute(program, order)
        return program.stats + Stats()

    def _execute(self, program: _Program, order: list[int]) -> None:
        actions, keep = program.actions, len(order) <= _PROGRAM_INSNS
        k = 0
        try:
            for k in order:
                action = actions[k]
                if action is None:
                    action = self._action(program.insns[k])
                    if keep:
                        actions[k] = action
                action()
        except AccessError as exc:
            raise AccessError(f"{program.at(k)}: {exc}", k) from None
        finally:
            self.state.finish()

    def _decoded(self, words: bytes) -> _Program:
        moved = self._latest.moved(words) if self._latest else None
        return moved or _Program(self.state, words)

    def _action(self, f: dict[str, int]) -> Action:
        return _ACTIONS[f["op"]](self.state, f)


_ACTIONS: dict[int, Callable[[State, dict[str, int]], Action]] = {
    Op.LOAD: load_action,
    Op.LOADP: load_action,
    Op.STORE: store_action,
    Op.GEMM: gemm_action,
    Op.DWGEMM: gemm_action,
    Op.ALU: alu_action,
    Op.TERNARY: ternary_action,
    Op.FINISH: lambda state, f: _finish,
}


def _finish() -> None:
    """FINISH changes nothing; it ends the run."""


class _Kind(NamedTuple):
    """Properties shared by instructions that differ in sizes and addresses only."""

    refusal: str | None
    node: Node
    mnemonic: str


class _Program:
    """A decoded program: `insns`, their `nodes`, and once executed their `order` and `actions`."""

    def __init__(self, state: State, words: bytes):
        self._isa, self._channels = state.isa, channels(state.cfg)
        self._words = np.frombuffer(words, np.uint64).reshape(-1, 2)
        self.insns = state.isa.decode(self._words)
        self.nodes: list[Node] = []
        self.stats = Stats()
        self.order: list[int] = []
        self.actions: list[Action | None] = [None] * len(self.insns)
        kinds: dict[tuple, _Kind] = {}
        for k, f in enumerate(self.insns):
            key = (*map(f.get, _KIND_FIELDS), f.get("x_size") == 0)
            kind = kinds.get(key)
            if kind is None:
                kind = kinds[key] = self._kind(f)
            if kind.refusal:
                self._check_early_finish(k)
                raise ExecutionError(f"{self.at(k)}: {kind.refusal}", k)
            self.nodes.append(kind.node)
            self.stats.insns[kind.mnemonic] += 1
            count_work(self.stats, state.cfg, state.entry_bytes, f)
        self._check_finish()

    def moved(self, words: bytes) -> _Program | None:
        """The program `words` with all that is known of this one; None where more than a few addresses differ."""
        given = np.frombuffer(words, np.uint64).reshape(-1, 2)
        if given.shape != self._words.shape:
            return None
        changed = np.flatnonzero((given != self._words).any(axis=1))
        if 2 * len(changed) > len(given):
            return None
        found = copy.copy(self)
        found._words, found.insns, found.actions = given, self.insns.copy(), self.actions.copy()
        for k, f in zip(changed.tolist(), self._isa.decode(given[changed])):
            if {**f, "dram_base": 0} != {**self.insns[k], "dram_base": 0}:
                return None
            found.insns[k], found.actions[k] = f, None
        return found

    def at(self, k: int) -> str:
        """The name of instruction `k` in messages."""
        return f"instruction {k} ({self._isa.disassemble(self.insns[k])})"

    def _kind(self, f: dict[str, int]) -> _Kind:
        reason = self._isa.undecodable(f)
        if reason:
            return _Kind(reason, Node(Queue.COMPUTE, (), ()), "")
        return _Kind(None, node(self._channels, self._isa.queue(f), f), self._isa.mnemonic(f))

    def _check_finish(self) -> None:
        if not self.insns:
            raise ExecutionError("the program has no FINISH: it has no instructions")
        last = len(self.insns) - 1
        self._check_early_finish(last)
        if self.insns[last]["op"] != Op.FINISH:
            raise ExecutionError(f"the program has no FINISH; its last instruction is {self.at(last)}", last)

    def _check_early_finish(self, stop: int) -> None:
        """Raise `ExecutionError` for a FINISH before instruction `stop`."""
        at = next((k for k, f in enumerate(self.insns[:stop]) if f["op"] == Op.FINISH), None)
        if at is not None:
            raise ExecutionError(f"{self.at(at)}: {len(self.insns) - 1 - at} instructions follow FINISH", at)


def _memory(dram: np.ndarray) -> np.ndarray:
    if dram.dtype != np.uint8 or dram.ndim != 1 or not dram.flags.c_contiguous or not dram.flags.writeable:
        raise InputError(f"DRAM is {dram.dtype} {dram.shape}: must be a writeable, contiguous array uint8 (n,)")
    return dram
