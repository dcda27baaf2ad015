"""The behavioural model, the fast form of sim/spec.py, as a device with memory of its own.

Decoding and checks run once per program and once per kind of instruction, and the order is kept: a program that
runs again, also with a few other addresses, is a list of ready actions. An action is a whole instruction as a few array
operations: LOAD and STORE in transfer.py, GEMM, DWGEMM and TERNARY in gemm.py, ALU in alu.py.

`schedule` finds the order from queues and dependence tokens, as `order` in sim/spec.py does. Each instruction waits at
the head of its queue until every channel that it pops holds a token, pops one of each, executes, and pushes one to
every channel that it names. Waiting does not depend on data, so the order is found before anything executes.

Unlike the definition, an instruction that fails changes nothing: its indices are checked before it executes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.errors import AccessError, DeadlockError, ExecutionError, InputError, TokenError
from ...hw.isa import FLAGS, Op
from ...hw.units import Channel, Queue, channels, queues
from ...runtime.device import Stats, count_work
from ...runtime.tokens import deadlock_text, left_over_text, popped, pushed
from ..memory import CAPACITY, DeviceMemory, Lru, program_bytes
from .alu import alu_action
from .gemm import gemm_action, ternary_action
from .state import Action, State
from .transfer import load_action, store_action

Choice = Callable[[list[int]], int]


class Node(NamedTuple):
    """An instruction for ordering: its queue, and the channels (by number) that it pops and pushes."""

    queue: Queue
    pops: tuple[int, ...]
    pushes: tuple[int, ...]


def node(every: Sequence[Channel], queue: Queue, f: dict[str, int]) -> Node:
    """The node of the decoded instruction `f`; a channel's number is its index in `every`."""
    return Node(queue, *(tuple(map(every.index, named(every, queue, f))) for named in (popped, pushed)))


def at_random(rng: np.random.Generator) -> Choice:
    """Choose one of the ready instructions at random, so that every legal interleaving can come about."""
    return lambda ready: ready[int(rng.integers(len(ready)))]


def schedule(cfg: Config, nodes: Sequence[Node], at: Callable[[int], str], choose: Choice = min) -> list[int]:
    """The order in which `nodes` execute, the last of which is FINISH.

    `choose` picks one of those that may execute next: by default the first in the program. `at(k)` names instruction k.
    Raises `DeadlockError`, `TokenError` for more tokens in a channel than it holds or for tokens left over,
    `ExecutionError` where something executes after FINISH.
    """
    every, named = channels(cfg), queues(cfg)
    waiting: list[list[int]] = [[] for _ in named]
    for k, n in enumerate(nodes):
        waiting[n.queue].append(k)
    heads, tokens, order = [0] * len(named), [0] * len(every), []
    while True:
        ready = []
        for queue, head in zip(waiting, heads):
            if head < len(queue):
                k = queue[head]
                if all(tokens[c] for c in nodes[k].pops):
                    ready.append(k)
        if not ready:
            break
        k = choose(ready)
        n = nodes[k]
        heads[n.queue] += 1
        order.append(k)
        for c in n.pops:
            tokens[c] -= 1
        for c in n.pushes:
            tokens[c] += 1
            if tokens[c] > cfg.token_depth:
                raise TokenError(f"{at(k)}: {tokens[c]} tokens {every[c]}; the channel holds {cfg.token_depth}", k)
    if len(order) < len(nodes):
        stuck = [queue[head] if head < len(queue) else None for queue, head in zip(waiting, heads)]
        text = deadlock_text(zip(named, stuck), lambda k: [every[c] for c in nodes[k].pops if not tokens[c]], at)
        raise DeadlockError(text, min(k for k in stuck if k is not None))
    if order[-1] != len(nodes) - 1:
        raise ExecutionError(f"{at(order[-1])} executes after FINISH: nothing orders FINISH behind it", order[-1])
    for c, left in enumerate(tokens):
        if left:
            last = max(k for k, n in enumerate(nodes) if c in n.pushes)
            raise TokenError(left_over_text(every[c], left, at(last)), last)
    return order


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


class ModelDevice(DeviceMemory):
    """Memory of up to `capacity` bytes and a behavioural model of configuration `cfg`.

    `rng` makes the model interleave its queues at random.
    """

    def __init__(self, cfg: Config, *, capacity: int = CAPACITY, rng: np.random.Generator | None = None):
        super().__init__(capacity)
        self.cfg = cfg
        self._model = Model(cfg, self.bytes, rng=rng)

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` to FINISH; errors as of `Model.run`."""
        return self.run_image(self.bytes, insn_address, insn_count)

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute in `image`, uint8 (n,), instead of the device's memory; its index is the address."""
        self.starts += 1
        if image is not self._model.dram:
            self._model.dram = image
        return self._model.run(insn_address, insn_count)
