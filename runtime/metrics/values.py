"""The values of a launch's metrics, and those of several launches as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...hw.config import Config
from ...hw.isa import SCRATCHPADS, Op, known_isa
from ...hw.metrics import Kind, Metric, metrics, token_level
from ...hw.units import units
from ..device import Stats, Timeline
from ..launch import Launch
from .levels import queue_levels, token_levels
from .scratchpads import used

Value = int | float | dict[str, int]


def of_launch(launch: Launch, stats: Stats) -> dict[str, Value]:
    """What is known of a run of `launch` that counted `stats`, by the names of hw/metrics.py and in their order.

    All metrics that the device of the run counts are there; a histogram has the bins that are not empty.
    """
    counted: dict[str, Any] = stats.to_dict()
    known: dict[str, Any] = {name: counted[name] for name in metrics(launch.cfg) if name in counted} | _issues(launch)
    known |= {name.lower(): count for name, count in stats.counters.items()}
    entries = used(launch)
    known |= {f"{mem.name.lower()}_high": entries.get(mem, 0) for mem in SCRATCHPADS}
    if stats.timeline is not None:
        known |= _followed(launch, stats.timeline())
    if stats.observed is not None:
        known |= stats.observed()
    return _with_rates(metrics(launch.cfg), known)


def combined(cfg: Config | Sequence[Config], launches: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
    """The values of several launches of `cfg`, one or several, as one: sums, largest values, and rates of the sums."""
    found: dict[str, Value] = {}
    declared = metrics(cfg) if isinstance(cfg, Config) else metrics(*cfg)
    for name, metric in declared.items():
        values = [values[name] for values in launches if name in values]
        if values and metric.over is None:
            found[name] = _joined(metric, values)
    return _with_rates(declared, found)


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
    ops, found = launch.insn[:, 0] & np.uint64(7), {"gemm_issues": 0}
    if "ternary" in launch.cfg.units:
        found["ternary_issues"] = 0
    for op in (Op.GEMM, Op.DWGEMM, Op.TERNARY):
        name = "ternary_issues" if op == Op.TERNARY else "gemm_issues"
        if op.name in isa.formats and name in found:
            f = isa.formats[op.name].decode(launch.insn[ops == op])
            issues = np.maximum(f["uop_end"] - f["uop_bgn"], 0) * f["iter_out"] * f["iter_in"]
            found[name] += int(issues[f["reset"] == 0].sum())
    return found


def _followed(launch: Launch, timeline: Timeline) -> dict[str, Value]:
    """What the cycles of each instruction say."""
    found: dict[str, Value] = {token_level(c): level.most for c, level in token_levels(launch, timeline).items()}
    found |= {f"{name}_queue_high": level.most for name, level in queue_levels(launch, timeline).items()}
    found["store_bank_wait"] = 0
    for one in units(launch.cfg):
        mine = timeline.queue == one.queue
        found[f"{one.name}_unit_wait"] = int(timeline.waits["unit"][mine].sum())
        found[f"{one.name}_durations"] = _by_powers(timeline.end[mine] - timeline.issue[mine])
    if "bank" in timeline.waits:
        found["store_bank_wait"] = int(timeline.waits["bank"].sum())
    return found


def _by_powers(cycles: np.ndarray) -> dict[str, int]:
    """How many of `cycles` are 0, 1, 2 to 3, 4 to 7, ..., under the first number of each bin."""
    lengths = [int(n).bit_length() for n in cycles]
    return {str(1 << n >> 1): count for n, count in sorted(Counter(lengths).items())}
