"""Cliffs: why a launch takes much longer than its work, in terms of the statements that its author wrote.

Each rule looks for one mistake, and estimates the cycles that a better schedule would save. Only what costs a good part
of the launch is told: `MATTERS` of its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..hw.config import Config
from ..hw.isa import Mem, depth, entry_bytes, scratchpad_of
from ..runtime.device import Timeline
from ..runtime.launch import Launch
from .dram import ZYNQ_HP, Dram
from .statements import Statement, Transfers, statements

MATTERS = 0.2  # of the launch's cycles
_MANY = 32  # instructions from which their number is a reason
_FEW = 16  # micro-op issues, or beats, below which an instruction is tiny
_PER_SUM = 4  # additions of accumulators per result from which they are a reduction
_AGAIN = 1.5  # bytes loaded per byte of the tensor from which it is loaded again


@dataclass(frozen=True)
class Cliff:
    """One finding: the rule `kind`, the statement's `path`, the `tensor` concerned if it is one, one sentence with the
    remedy, and the cycles that it may save.
    """

    kind: str
    path: tuple[str, ...]
    tensor: str
    text: str
    cycles: int


@dataclass(frozen=True)
class _Facts:
    """What the rules see of one operator: its statements, and the launch around it."""

    cfg: Config
    dram: Dram
    total: int
    mine: Sequence[Statement]
    every: Sequence[Statement]

    def matters(self, cycles: float) -> bool:
        return cycles >= MATTERS * self.total

    def beats(self, nbytes: int) -> float:
        return nbytes / min(self.cfg.axi_bits // 8, self.dram.port_bytes)


def cliffs(launch: Launch, timeline: Timeline, cycles: int, dram: Dram = ZYNQ_HP) -> list[Cliff]:
    """The cliffs of a run of `launch` on a memory `dram`, the most expensive first."""
    every = statements(launch, timeline)
    operators = dict.fromkeys(statement.path[:1] for statement in every if statement.path)
    found: list[Cliff] = []
    for operator in operators:
        mine = [statement for statement in every if statement.path[:1] == operator]
        facts = _Facts(launch.cfg, dram, cycles, mine, every)
        seen = [cliff for rule in RULES for cliff in rule(facts)]
        reduced = any(cliff.kind == "reduction" for cliff in seen)  # of which tiny instructions are a consequence
        found += [cliff for cliff in seen if not (reduced and cliff.kind == "tiny_instructions")]
    return sorted(found, key=lambda cliff: -cliff.cycles)


def _reduction(facts: _Facts) -> Iterator[Cliff]:
    """Accumulators that are set a few entries at a time, or sums that go through DRAM."""
    initial = sum(s.initial for s in facts.mine)
    issues = sum(s.initial_issues for s in facts.mine)
    lost = sum(s.compute_cycles - s.issues for s in facts.mine)
    if initial >= _MANY and issues < _FEW * initial and facts.matters(lost):
        where = max(facts.mine, key=lambda s: s.compute_cycles)
        text = f"{initial:,} instructions set accumulators, {issues / initial:.0f} entries each"
        remedy = "decompose_reduction at the outermost loop of the reduction, around whole tiles"
        yield Cliff("reduction", where.path, "", f"{text}: {remedy}", lost)
    stored = {moved.buffer for s in facts.mine for moved in s.moved(store=True)}
    for statement in facts.mine:
        for moved in statement.moved(store=True):
            again = moved.nbytes / moved.distinct_bytes(_granule(facts.cfg, moved))
            back = [s for s in facts.mine for each in s.moved(store=False) if each.buffer == moved.buffer]
            lost = int((statement.cycles + sum(s.cycles for s in back)) * (1 - 1 / again))
            if again >= _AGAIN and moved.buffer in stored and facts.matters(lost):
                text = f"{moved.buffer} is stored {again:.1f} times"
                remedy = (
                    "keep the sums in accumulators until the reduction ends: move its loop inside that of the store"
                )
                yield Cliff("reduction", statement.path, moved.buffer, f"{text}: {remedy}", lost)


def _one_slot(facts: _Facts) -> Iterator[Cliff]:
    """Loads that wait until compute has read the tile before, while compute waits for them."""
    spent = sum(s.compute_cycles for s in facts.mine)
    loads = [(s, moved) for s in facts.mine for moved in s.moved(store=False) if moved.mem in (Mem.INP, Mem.WGT)]
    for statement, moved in loads:
        lost = min(statement.cycles, spent, statement.token_wait)
        room = depth(facts.cfg, moved.mem) - _peak(facts, moved.mem)
        size = max(last - first + 1 for first, last in zip(moved.first, moved.last))
        if moved.overwrites() >= 2 and size <= room and facts.matters(lost):
            text = f"loads of {moved.buffer} wait for the products of the tile before, which is in the same entries"
            remedy = 'bind a loop to "vthread.x", or annotate the load with more slots, so that they overlap'
            yield Cliff("one_slot", statement.path, moved.buffer, f"{text}: {remedy}", lost)


def _tiny_instructions(facts: _Facts) -> Iterator[Cliff]:
    """Many instructions with little work each."""
    tiny = []
    for statement in facts.mine:
        if statement.loops >= _MANY and statement.issues < _FEW * statement.loops:
            waste = statement.compute_cycles - statement.issues
            tiny.append((waste, statement, "micro-ops", statement.issues / statement.loops))
        for moved in [*statement.moved(store=False), *statement.moved(store=True)]:
            beats = facts.beats(moved.nbytes)
            if len(moved.at) >= _MANY and beats < _FEW * len(moved.at):
                waste = max(min(statement.cycles, statement.busy) - beats, 0)
                tiny.append((waste, statement, "beats", beats / len(moved.at)))
    lost = sum(waste for waste, *_ in tiny)
    if tiny and facts.matters(lost):
        _, statement, what, each = max(tiny, key=lambda one: one[0])
        text = f"{len(statement.at):,} instructions of {each:.1f} {what} each"
        remedy = "move loops inside the instruction: compute_at an outer loop, larger tiles"
        yield Cliff("tiny_instructions", statement.path, "", f"{text}: {remedy}", int(lost))


def _unaligned(facts: _Facts) -> Iterator[Cliff]:
    """Transfers of short rows that are far apart."""
    for statement in facts.mine:
        for moved in [*statement.moved(store=False), *statement.moved(store=True)]:
            rows = sum(rows for _, rows, _, _ in moved.spans)
            beats = facts.beats(moved.nbytes)
            lost = min(statement.cycles, statement.busy - beats)
            if rows > 2 * len(moved.at) and rows >= _MANY and facts.matters(lost):
                text = f"{moved.buffer} moves in {rows:,} rows of {moved.nbytes // rows} bytes that are not adjacent"
                remedy = "choose a layout or a loop order in which a tile is contiguous in DRAM"
                yield Cliff("unaligned", statement.path, moved.buffer, f"{text}: {remedy}", int(lost))


def _alu_product(facts: _Facts) -> Iterator[Cliff]:
    """Reductions and products with few factors on the ALU."""
    size = facts.cfg.lanes
    results = sum(moved.nbytes for s in facts.mine for moved in s.moved(store=True)) / size
    for statement in facts.mine:
        wide = statement.added >= _PER_SUM * results > 0
        if (wide or statement.spread) and facts.matters(statement.compute_cycles / 2):
            done = (
                f"{statement.added / results:.0f} additions per result"
                if wide
                else "products with the same few factors"
            )
            remedy = "GEMM does this with weights of ones or a diagonal, DWGEMM channel by channel, one issue per cycle"
            text = f"the ALU does {done}"
            yield Cliff("alu_product", statement.path, "", f"{text}: {remedy}", statement.compute_cycles // 2)


def _loaded_again(facts: _Facts) -> Iterator[Cliff]:
    """Tensors that are loaded several times though they would fit."""
    written = {moved.buffer for s in facts.every for moved in s.moved(store=True)}
    for statement in facts.mine:
        for moved in statement.moved(store=False):
            distinct = moved.distinct_bytes(_granule(facts.cfg, moved))
            again = moved.nbytes / distinct
            lost = statement.cycles * (1 - 1 / again)
            fits = distinct <= _bytes(facts.cfg, moved.mem)
            if again >= _AGAIN and fits and moved.buffer not in written and facts.matters(lost):
                text = f"{moved.buffer}, {distinct:,} bytes, is loaded {again:.1f} times"
                remedy = "it fits on chip: load it outside the loops that do not change it (compute_at further out)"
                yield Cliff("loaded_again", statement.path, moved.buffer, f"{text}; {remedy}", int(lost))


RULES: tuple[Callable[[_Facts], Iterable[Cliff]], ...] = (
    _reduction,
    _one_slot,
    _tiny_instructions,
    _unaligned,
    _alu_product,
    _loaded_again,
)


def _granule(cfg: Config, moved: Transfers) -> int:
    return entry_bytes(cfg, moved.mem)


def _bytes(cfg: Config, mem: Mem) -> int:
    """Bytes in DRAM of what the scratchpad of `mem` holds."""
    return depth(cfg, scratchpad_of(mem)) * entry_bytes(cfg, mem)


def _peak(facts: _Facts, mem: Mem) -> int:
    """Entries of a scratchpad up to the highest that the operator's loads fill."""
    last = [max(m.last) for s in facts.mine for m in s.moved(store=False) if scratchpad_of(m.mem) == scratchpad_of(mem)]
    return max(last, default=-1) + 1
