"""Values of the metrics that hw/metrics.py declares, from a launch, its counts and the cycles of its instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..hw.config import Config
from ..hw.isa import MICRO_OPS, SCRATCHPADS, Isa, Mem, Op, depth, instruction, known_isa
from ..hw.metrics import Kind, Metric, metrics, token_level
from ..hw.units import Channel, channels, units
from .access import scratchpad_accesses
from .arrays import Array
from .device import Stats, Timeline, Value
from .launch import Launch


class Level(NamedTuple):
    """A level over time: `values[k]` after cycle `cycles[k]`, int64 (n,) ascending; 0 before the first."""

    cycles: Array
    values: Array

    @property
    def most(self) -> int:
        """The highest level."""
        return int(self.values.max()) if len(self.values) else 0


def token_levels(launch: Launch, timeline: Timeline) -> dict[Channel, Level]:
    """Tokens in each channel: given when an instruction ends, taken when the next one is issued."""
    return {
        channel: _level(
            timeline.end[flagged(launch, timeline, channel.source, channel.push)],
            timeline.issue[flagged(launch, timeline, channel.target, channel.pop)],
        )
        for channel in channels(launch.cfg)
    }


def queue_levels(launch: Launch, timeline: Timeline) -> dict[str, Level]:
    """Instructions in each command queue, by the unit's name; empty where it is not seen when they enter."""
    if timeline.queued is None:
        return {}
    of_unit = {unit.name: timeline.queue == unit.queue for unit in units(launch.cfg)}
    return {name: _level(timeline.queued[at], timeline.issue[at]) for name, at in of_unit.items()}


def flagged(launch: Launch, timeline: Timeline, queue: int, flag: str) -> Array:
    """The instructions of `queue` with the `flag`, in the order of the program."""
    field = known_isa(launch.cfg).formats["FINISH"].fields[flag]
    has = (launch.insn[:, 0] >> np.uint64(field.lo) & np.uint64(1)).astype(bool)
    return np.flatnonzero(has & (timeline.queue == queue))


def _level(more: Array, less: Array) -> Level:
    """The level that rises by 1 in each cycle of `more` and falls by 1 in each cycle of `less`."""
    cycles, at = np.unique(np.concatenate([more, less]), return_inverse=True)
    steps = np.concatenate([np.ones(len(more), np.int64), np.full(len(less), -1, np.int64)])
    values = np.zeros(len(cycles), np.int64)
    np.add.at(values, at.reshape(-1), steps)
    return Level(cycles, values.cumsum())


def used(launch: Launch) -> dict[Mem, int]:
    """Per scratchpad its entries up to the last that `launch` reads or writes; those that it uses alone.

    Instructions that cannot be decoded, and micro-ops that no constant buffer holds, use nothing.
    """
    isa = known_isa(launch.cfg)
    ends: dict[Mem, int] = {}
    for f, uops in with_micro_ops(launch, isa):
        if isa.undecodable(f):
            continue
        for access in scratchpad_accesses(launch.cfg, f, uops):
            first, end = access.reach
            if first < end:
                ends[access.mem] = max(ends.get(access.mem, 0), end)
    return ends


def with_micro_ops(launch: Launch, isa: Isa) -> Iterator[tuple[dict[str, int], Array]]:
    """Every instruction, decoded, with the micro-ops that it executes: int64 (n, 3), columns dst, src, wgt."""
    memory = {mem: np.zeros((depth(launch.cfg, mem), 3), np.int64) for mem in MICRO_OPS}
    words = isa.uop.decode(launch.uops.astype(np.uint64)[:, None])
    constants = np.stack([words[name] for name in ("dst", "src", "wgt")], axis=1)
    none = constants[:0]
    for f in isa.decode(launch.insn):
        row = instruction(f["op"], f.get("mem"))
        if row is not None and row.loads is not None and row.loads in MICRO_OPS:
            loaded = constants[f["dram_base"] : f["dram_base"] + f["x_size"]]
            memory[row.loads][f["sram_base"] : f["sram_base"] + len(loaded)] = loaded
        executes = None if row is None else row.executes
        yield f, none if executes is None else memory[executes][f["uop_bgn"] : f["uop_end"]]


def of_launch(launch: Launch, stats: Stats) -> dict[str, Value]:
    """The metrics of a run of `launch` that counted `stats`, by the names of hw/metrics.py and in their order.

    All metrics that the device of the run counts are there; a histogram has the bins that are not empty.
    """
    known: dict[str, Value] = {name: n for name, n in stats.to_dict().items() if name in metrics(launch.cfg)}
    known |= _issues(launch)
    known |= {name.lower(): count for name, count in stats.counters.items()}
    entries = used(launch)
    known |= {f"{mem.name.lower()}_high": entries.get(mem, 0) for mem in SCRATCHPADS}
    if stats.timeline is not None:
        known |= _followed(launch, stats.timeline())
    if stats.observed is not None:
        known |= stats.observed()
    return _with_rates(metrics(launch.cfg), known)


def combined(cfg: Config | Sequence[Config], launches: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """The metrics of `launches` together: sums, largest values, and rates of the sums.

    `cfg` is their configuration, or the configurations of several devices.
    """
    totals: dict[str, Value] = {}
    declared = metrics(cfg) if isinstance(cfg, Config) else metrics(*cfg)
    for name, metric in declared.items():
        values = [values[name] for values in launches if name in values]
        if values and metric.over is None:
            totals[name] = _joined(metric, values)
    return _with_rates(declared, totals)


def _joined(metric: Metric, values: Sequence[Value]) -> Value:
    if metric.kind == Kind.HISTOGRAM:
        bins: Counter[str] = Counter()
        for value in values:
            assert isinstance(value, dict)
            bins.update(value)
        numbered = all(one.isdecimal() for one in bins)
        return {one: bins[one] for one in sorted(bins, key=int)} if numbered else dict(bins)
    numbers = [value for value in values if isinstance(value, int)]
    return max(numbers) if metric.kind == Kind.HIGH_WATER else sum(numbers)


def _with_rates(declared: Mapping[str, Metric], found: Mapping[str, Value]) -> dict[str, Value]:
    """`found` in the order of the metrics `declared`, with the rates of what is there."""
    ordered: dict[str, Value] = {}
    for name, metric in declared.items():
        if metric.over is not None:
            above, below = (found.get(part) for part in metric.over)
            if isinstance(above, int) and isinstance(below, int):
                ordered[name] = round(above / below, 6) if below else 0.0
        elif name in found:
            ordered[name] = found[name]
    return ordered


def _issues(launch: Launch) -> dict[str, int]:
    """Micro-op issues that multiply, of GEMM and DWGEMM and of unit `ternary`."""
    isa = known_isa(launch.cfg)
    ops, issued = launch.insn[:, 0] & np.uint64(7), {"gemm_issues": 0}
    if "ternary" in launch.cfg.units:
        issued["ternary_issues"] = 0
    for op in (Op.GEMM, Op.DWGEMM, Op.TERNARY):
        name = "ternary_issues" if op == Op.TERNARY else "gemm_issues"
        if op.name in isa.formats and name in issued:
            f = isa.formats[op.name].decode(launch.insn[ops == op])
            issues = np.maximum(f["uop_end"] - f["uop_bgn"], 0) * f["iter_out"] * f["iter_in"]
            issued[name] += int(issues[f["reset"] == 0].sum())
    return issued


def _followed(launch: Launch, timeline: Timeline) -> dict[str, Value]:
    """The metrics that follow from the cycles of each instruction."""
    values: dict[str, Value] = {token_level(c): level.most for c, level in token_levels(launch, timeline).items()}
    values |= {f"{name}_queue_high": level.most for name, level in queue_levels(launch, timeline).items()}
    values["store_bank_wait"] = 0
    for one in units(launch.cfg):
        of_unit = timeline.queue == one.queue
        values[f"{one.name}_unit_wait"] = int(timeline.waits["unit"][of_unit].sum())
        values[f"{one.name}_durations"] = _by_powers(timeline.end[of_unit] - timeline.issue[of_unit])
    if "bank" in timeline.waits:
        values["store_bank_wait"] = int(timeline.waits["bank"].sum())
    return values


def _by_powers(cycles: Array) -> dict[str, int]:
    """How many of `cycles` are 0, 1, 2 to 3, 4 to 7, ..., under the first number of each bin."""
    lengths = [int(n).bit_length() for n in cycles]
    return {str(1 << n >> 1): count for n, count in sorted(Counter(lengths).items())}
