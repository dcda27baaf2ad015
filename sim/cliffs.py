"""Cliffs: reasons why a launch takes much longer than its work, in terms of the statements that its author wrote.

`statements` counts the transfers, micro-op issues and cycles of each statement of a schedule, or of each operator. Each
rule of `cliffs` looks there for one mistake, and estimates the cycles that a better schedule would save. A cliff is
reported only if it costs at least the share `MATTERS` of the launch's cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..hw.config import Config
from ..hw.isa import MICRO_OPS, AluOp, Mem, Op, depth, entry_bytes, known_isa, mem_of, room, row_of, scratchpad_of
from ..hw.stages import bus_bits
from ..runtime.access import dram_access, scratchpad_accesses, tile_entries
from ..runtime.device import Timeline
from ..runtime.launch import Launch
from ..runtime.metrics import with_micro_ops
from .dram import ZYNQ_HP, Dram
from .profile import owned_cycles, spent_cycles


@dataclass
class Transfers:
    """The loads or stores of one statement between `buffer` and `mem`, in the order of the program.

    One value per instruction: `first` and `last` scratchpad entry, and of `spans` the first byte in the buffer, rows,
    bytes of a row, and bytes from one row to the next; rows that are adjacent in DRAM are one. `cycles` belong to them
    (see `profile`), `busy` are those in which one is the oldest of its queue, `token_wait` those in which they wait for
    tokens.
    """

    buffer: str
    mem: Mem
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    cycles: int = 0
    busy: int = 0
    token_wait: int = 0

    @property
    def count(self) -> int:
        """Number of instructions."""
        return len(self.spans)

    @property
    def rows(self) -> int:
        """Rows that are not adjacent."""
        return sum(rows for _, rows, _, _ in self.spans)

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        return sum(rows * row for _, rows, row, _ in self.spans)

    def distinct_bytes(self, granule: int) -> int:
        """Bytes of the buffer that are moved at least once; every row is whole cells of `granule` bytes."""
        end = max(start + (rows - 1) * pitch + row for start, rows, row, pitch in self.spans)
        cells = np.zeros(-(-end // granule), bool)
        for start, rows, row, pitch in set(self.spans):
            firsts = (start + pitch * np.arange(rows)) // granule
            cells[(firsts[:, None] + np.arange(row // granule)).reshape(-1)] = True
        return int(cells.sum()) * granule

    def overwrites(self) -> int:
        """How often a load replaces entries that an earlier one of them filled with other data."""
        count, filled = 0, dict[tuple[int, int], tuple[int, int, int, int]]()
        for first, last, span in zip(self.first, self.last, self.spans):
            hit = [(a, b) for (a, b), held in filled.items() if a <= last and first <= b and held != span]
            count += bool(hit)
            for key in hit:
                del filled[key]
            filled[first, last] = span
        return count


@dataclass
class Statement:
    """The facts of one path of origins.

    `at` are the positions of its instructions. `cycles` belong to it (see `profile`), `compute_cycles` of them to GEMM
    and ALU instructions and the loads of their micro-ops. It has `loops` GEMM and ALU instructions, with micro-op
    `issues`; `initial` of them are GEMM that sets accumulators, with `initial_issues`. `added` are issues of ADD with
    two accumulators, `summed` those of them that add sums of products, `spread` issues of MUL with an accumulator that
    is an operand of several.
    """

    path: tuple[str, ...]
    at: list[int] = field(default_factory=list)
    cycles: int = 0
    compute_cycles: int = 0
    issues: int = 0
    loops: int = 0
    initial: int = 0
    initial_issues: int = 0
    added: int = 0
    summed: int = 0
    spread: int = 0
    transfers: dict[tuple[str, bool], Transfers] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The innermost name, or "launch" for instructions that belong to no operator."""
        return self.path[-1] if self.path else "launch"

    def moved(self, store: bool) -> list[Transfers]:
        """The loads of tensors, or the stores, one entry per buffer. Loads of micro-ops are left out."""
        return [each for (_, stores), each in self.transfers.items() if stores == store]


def statements(launch: Launch, timeline: Timeline) -> list[Statement]:
    """The facts of every statement of `launch`, in the order of their first instruction."""
    origins = launch.known_origins
    found = [Statement(path) for path in origins.paths]
    owned, spent = owned_cycles(launch, timeline), spent_cycles(timeline)
    products = np.zeros(launch.cfg.acc_depth, bool)  # accumulators that GEMM wrote last
    for k, (number, (f, uops)) in enumerate(zip(origins.of.tolist(), with_micro_ops(launch, known_isa(launch.cfg)))):
        statement = found[number]
        statement.at.append(k)
        statement.cycles += int(owned[k])
        if row_of(f["op"], f.get("mem")).loads in MICRO_OPS:
            statement.compute_cycles += int(owned[k])
        elif "uop_bgn" in f:
            statement.compute_cycles += int(owned[k])
            _count_loops(statement, f, uops)
            _count_sums(statement, launch.cfg, f, uops, products)
        elif (moved := _transfer(statement, launch, k, f)) is not None:
            moved.cycles += int(owned[k])
            moved.busy += int(spent[k])
            moved.token_wait += int(timeline.waits["token"][k])
    return sorted((each for each in found if each.at), key=lambda each: each.at[0])


def _count_loops(statement: Statement, f: dict[str, int], uops: np.ndarray) -> None:
    count = f["iter_out"] * f["iter_in"] * len(uops)
    statement.loops += 1
    statement.issues += count
    if f.get("reset") or f.get("overwrite"):
        statement.initial += 1
        statement.initial_issues += count
    if f["op"] != Op.ALU or f["use_imm"]:
        return
    if f["alu_op"] == AluOp.ADD:
        statement.added += count
    elif f["alu_op"] == AluOp.MUL:
        distinct = len(np.unique(uops[:, 1]))
        distinct *= (f["iter_out"] if f["src_out"] else 1) * (f["iter_in"] if f["src_in"] else 1)
        statement.spread += count if distinct < count else 0


def _count_sums(statement: Statement, cfg: Config, f: dict[str, int], uops: np.ndarray, products: np.ndarray) -> None:
    """Count additions of accumulators that hold `products`, and keep those up to date."""
    accesses = [access for access in scratchpad_accesses(cfg, f, uops) if access.mem == Mem.ACC]
    if f["op"] != Op.ALU:
        for access in accesses:
            products[access.entries] = not f["reset"]
    elif f["alu_op"] == AluOp.ADD and not f["use_imm"]:
        read = [products[access.entries] for access in accesses if not access.write]
        if read and np.concatenate(read).mean() > 0.5:
            statement.summed += f["iter_out"] * f["iter_in"] * len(uops)


def _transfer(statement: Statement, launch: Launch, k: int, f: dict[str, int]) -> Transfers | None:
    """Add instruction `k` to its transfers and return them; None for an instruction that moves nothing."""
    access = dram_access(launch.cfg, f)
    if access is None:
        return None
    buffer, mem = launch.buffers[launch.reloc[k]].name, mem_of(f["op"], f["mem"])
    moved = statement.transfers.setdefault((buffer, access.write), Transfers(buffer, mem))
    moved.first.append(f["sram_base"])
    moved.last.append(f["sram_base"] + tile_entries(f) - 1)
    if access.pitch == access.nbytes:
        moved.spans.append((access.start, 1, access.rows * access.nbytes, access.rows * access.nbytes))
    else:
        moved.spans.append((access.start, access.rows, access.nbytes, access.pitch))
    return moved


_HELD = (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC, Mem.PAR, Mem.TWGT, Mem.TUOP)


def occupancy(launch: Launch) -> dict[str, tuple[int, int]]:
    """The entries of each scratchpad that the launch accesses, and those that there are, by the memory's name."""
    cfg, isa = launch.cfg, known_isa(launch.cfg)
    used = {mem: np.zeros(room(cfg, mem), bool) for mem in _HELD}
    for f, uops in with_micro_ops(launch, isa):
        for access in scratchpad_accesses(cfg, f, uops):
            used[access.mem][access.entries] = True
    return {mem.name: (int(cells.sum()), len(cells)) for mem, cells in used.items() if cells.any()}


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
    """The input of the rules: the statements `mine` of one operator, and those of the launch around it, `every`."""

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
    """Transfers of short rows with a large stride."""
    for statement, moved in [*facts.moved(store=False), *facts.moved(store=True)]:
        lost = min(moved.cycles, moved.busy - facts.beats(moved))
        if moved.rows > 2 * moved.count and moved.rows >= _MANY and facts.matters(lost):
            size = moved.nbytes // moved.rows
            text = f"{moved.buffer} moves in {moved.rows:,} rows of {size} bytes that are not adjacent"
            remedy = "choose a layout or a loop order in which a tile is contiguous in DRAM"
            yield Cliff("unaligned", statement.path, moved.buffer, f"{text}: {remedy}", int(lost))


def _alu_product(facts: _Facts) -> Iterator[Cliff]:
    """Reductions, and products with few factors, on the ALU: two issues each, and no other work overlaps the loads of
    their operands.
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
