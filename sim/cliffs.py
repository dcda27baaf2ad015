"""Cliffs: why a launch takes much longer than its work, in terms of the statements that its author wrote.

Each rule looks for one mistake, and estimates the cycles that a better schedule would save. Only what costs a good part
of the launch is told: `MATTERS` of its cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..hw.config import Config
from ..hw.isa import Mem, depth, entry_bytes, scratchpad_of
from ..hw.stages import bus_bits
from ..runtime.device import Timeline
from ..runtime.launch import Launch
from .dram import ZYNQ_HP, Dram
from .statements import Statement, Transfers, statements

MATTERS = 0.2  # of the launch's cycles
_MANY = 32  # instructions from which their number is a reason
_FEW = 16  # micro-op issues, or beats, below which an instruction is tiny
_PER_SUM = 4  # additions of accumulators per result from which they are a reduction
_SUMS = 2  # additions of sums of products per result from which these are one reduction
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

    def beats(self, moved: Transfers) -> float:
        """The least cycles of the transfers on the bus, or on its ports together."""
        width = bus_bits(self.cfg, moved.mem)
        return moved.nbytes / min(width // 8, self.dram.port_bytes * width // self.cfg.axi_bits)

    def distinct(self, moved: Transfers) -> int:
        return moved.distinct_bytes(entry_bytes(self.cfg, moved.mem))

    def results(self) -> float:
        """Accumulators that are stored, counted as often as they are."""
        return sum(moved.nbytes for _, moved in self.moved(store=True)) / self.cfg.out_entry_bytes

    def moved(self, store: bool) -> list[tuple[Statement, Transfers]]:
        return [(statement, moved) for statement in self.mine for moved in statement.moved(store)]


def cliffs(launch: Launch, timeline: Timeline, cycles: int, dram: Dram = ZYNQ_HP) -> list[Cliff]:
    """The cliffs of a run of `launch` on a memory `dram`, the most expensive first."""
    every = statements(launch, timeline)
    operators = dict.fromkeys(statement.path[:1] for statement in every if statement.cycles)
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
    for statement, moved in facts.moved(store=True):
        again = moved.nbytes / facts.distinct(moved)
        back = sum(each.cycles for _, each in facts.moved(store=False) if each.buffer == moved.buffer)
        lost = int((moved.cycles + back) * (1 - 1 / again))
        if again >= _AGAIN and back and facts.matters(lost):
            text = f"{moved.buffer} is stored {again:.1f} times and loaded between"
            remedy = "keep the sums in accumulators until the reduction ends: its loop belongs inside that of the store"
            yield Cliff("reduction", statement.path, moved.buffer, f"{text}: {remedy}", lost)


def _sums_of_products(facts: _Facts) -> Iterator[Cliff]:
    """Sums of products that the ALU adds to each other."""
    results = facts.results()
    for statement in facts.mine:
        lost = statement.compute_cycles
        if statement.summed >= _SUMS * results > 0 and facts.matters(lost):
            text = f"the ALU adds {statement.summed / results:.0f} sums of products per result"
            remedy = "let GEMM accumulate: the loop of the reduction belongs inside, on the same accumulators"
            yield Cliff("reduction", statement.path, "", f"{text}: {remedy}", lost)


def _one_slot(facts: _Facts) -> Iterator[Cliff]:
    """Loads that wait until compute has read the tile before, while compute waits for them; or the same of stores."""
    computed = sum(s.compute_cycles for s in facts.mine)
    total = sum(s.cycles for s in facts.mine)
    moved = [(s, each) for s, each in facts.moved(store=False) if each.mem in (Mem.INP, Mem.WGT)]
    for kind, told in ((moved, _LOADS), (facts.moved(store=True), _STORES)):
        idle = total - sum(each.busy for _, each in kind)  # of the load or store unit
        for statement, each in kind:
            mem = scratchpad_of(each.mem)
            lost = min(each.cycles, computed, each.token_wait, idle)
            filled = max(max(other.last) for _, other in kind if scratchpad_of(other.mem) == mem) + 1
            size = max(last - first + 1 for first, last in zip(each.first, each.last))
            if each.overwrites() >= 2 and filled + size <= depth(facts.cfg, mem) and facts.matters(lost):
                yield Cliff("one_slot", statement.path, each.buffer, told.format(each.buffer), lost)


_LOADS = (
    "loads of {} wait for the products of the tile before, which is in the same entries: "
    'bind a loop to "vthread.x", or annotate the load with more slots, so that they overlap'
)
_STORES = (
    "compute waits for stores to {} of the tile before, whose accumulators it needs again: "
    'bind a loop to "vthread.x", so that the next tile has others'
)


def _tiny_instructions(facts: _Facts) -> Iterator[Cliff]:
    """Many instructions with little work each."""
    tiny = []
    for statement in facts.mine:
        if statement.loops >= _MANY and statement.issues < _FEW * statement.loops:
            each = f"{statement.loops:,} instructions of {statement.issues / statement.loops:.1f} micro-ops each"
            tiny.append((statement.compute_cycles - statement.issues, statement, each))
    for statement, moved in [*facts.moved(store=False), *facts.moved(store=True)]:
        beats = facts.beats(moved)
        if moved.count >= _MANY and beats < _FEW * moved.count:
            each = f"{moved.count:,} transfers of {beats / moved.count:.1f} beats each"
            tiny.append((max(min(moved.cycles, moved.busy) - beats, 0), statement, each))
    lost = sum(waste for waste, *_ in tiny)
    if tiny and facts.matters(lost):
        _, statement, text = max(tiny, key=lambda one: one[0])
        remedy = "move loops inside the instruction: compute_at an outer loop, larger tiles"
        yield Cliff("tiny_instructions", statement.path, "", f"{text}: {remedy}", int(lost))


def _unaligned(facts: _Facts) -> Iterator[Cliff]:
    """Transfers of short rows that are far apart."""
    for statement, moved in [*facts.moved(store=False), *facts.moved(store=True)]:
        lost = min(moved.cycles, moved.busy - facts.beats(moved))
        if moved.rows > 2 * moved.count and moved.rows >= _MANY and facts.matters(lost):
            size = moved.nbytes // moved.rows
            text = f"{moved.buffer} moves in {moved.rows:,} rows of {size} bytes that are not adjacent"
            remedy = "choose a layout or a loop order in which a tile is contiguous in DRAM"
            yield Cliff("unaligned", statement.path, moved.buffer, f"{text}: {remedy}", int(lost))


def _alu_product(facts: _Facts) -> Iterator[Cliff]:
    """Reductions, and products with few factors, on the ALU: two issues each, and their operands are not loaded beside
    other work.
    """
    results = facts.results()
    loaded = sum(moved.cycles for _, moved in facts.moved(store=False) if scratchpad_of(moved.mem) == Mem.ACC)
    for statement in facts.mine:
        reduces = statement.added - statement.summed >= _PER_SUM * results > 0
        lost = statement.compute_cycles // 2 + min(loaded, statement.compute_cycles // 2)
        if (reduces or statement.spread) and facts.matters(lost):
            many = (
                f"{statement.added / results:.0f} additions per result" if reduces else "products with the same factors"
            )
            remedy = "GEMM with weights of ones or a diagonal does this, DWGEMM channel by channel, in one issue each"
            yield Cliff("alu_product", statement.path, "", f"the ALU does {many}: {remedy}", lost)


def _loaded_again(facts: _Facts) -> Iterator[Cliff]:
    """Tensors that are loaded several times though they would fit."""
    written = {moved.buffer for s in facts.every for moved in s.moved(store=True)}
    for statement, moved in facts.moved(store=False):
        distinct = facts.distinct(moved)
        again = moved.nbytes / distinct
        lost = int(moved.cycles * (1 - 1 / again))
        fits = distinct <= depth(facts.cfg, scratchpad_of(moved.mem)) * entry_bytes(facts.cfg, moved.mem)
        if again >= _AGAIN and fits and moved.buffer not in written and facts.matters(lost):
            text = f"{moved.buffer}, {distinct:,} bytes, is loaded {again:.1f} times"
            remedy = "it fits on chip: load it outside the loops that do not change it (compute_at further out)"
            yield Cliff("loaded_again", statement.path, moved.buffer, f"{text}; {remedy}", lost)


RULES: tuple[Callable[[_Facts], Iterable[Cliff]], ...] = (
    _reduction,
    _sums_of_products,
    _one_slot,
    _tiny_instructions,
    _unaligned,
    _alu_product,
    _loaded_again,
)
