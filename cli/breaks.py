"""Why a network is several launches: the host's operators between two launches, and what would join these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..hw.config import PRESETS, Config

if TYPE_CHECKING:
    from ..compiler.graph import Operator
    from ..compiler.network import Compiled
    from ..compiler.target.assign import Choice

BREAK_COLUMNS = ["after the launch", "operator", "kind", "why on the host", "what would join the launches"]
_LARGER = "pynq_z1_plus"  # the preset with a kernel of most operators


def breaks(compiled: Compiled) -> list[dict[str, str]]:
    """A row, by `BREAK_COLUMNS`, for each operator of the host that reads a launch and that a later launch reads.

    It may do so by way of other operators of the host.
    """
    rows, parts = list[dict[str, str]](), compiled.assignment.parts()
    choices = {op.name: choice for choice in compiled.assignment.choices for op in choice.ops}
    launched = [k for k, (module, _) in enumerate(parts) if module.name != "host"]
    for k, (module, ops) in enumerate(parts):
        if module.name != "host" or not launched or not launched[0] < k < launched[-1]:
            continue
        before = _outputs(op for at in launched if at < k for op in parts[at][1])
        wanted = {t.name for at in launched if at > k for op in parts[at][1] for t in op.inputs}
        last = parts[max(at for at in launched if at < k)][1]
        for op in _between(ops, before, wanted):
            why, joins = _reason(op, choices[op.name], compiled.made.cfg)
            cells = f"{last[0].name} to {last[-1].name}", op.name, type(op).__name__, why, joins
            rows.append(dict(zip(BREAK_COLUMNS, cells)))
    return rows


def _outputs(ops: Iterable[Operator]) -> set[str]:
    return {op.output.name for op in ops}


def _between(ops: Sequence[Operator], before: set[str], wanted: set[str]) -> list[Operator]:
    """Those of `ops` on a way from the tensors `before` to those `wanted`."""
    reached, needed = set(before), set(wanted)
    for op in ops:
        if any(t.name in reached for t in op.inputs):
            reached.add(op.output.name)
    for op in reversed(ops):
        if op.output.name in needed:
            needed |= {t.name for t in op.inputs}
    return [op for op in ops if op.output.name in reached & needed]


def _reason(op: Operator, choice: Choice, cfg: Config) -> tuple[str, str]:
    """(Why the host computes `op` in a network for `cfg`, what would bring it into the launches)."""
    from ..compiler.accelerator.module import Accelerator

    refusals = [why for name, why in choice.refusals.items() if name != "host"]
    if not refusals:
        others = [f"{1e6 * seconds:,.0f} us on {name}" for name, seconds in choice.seconds.items()]
        return f"it takes the least time there: {', '.join(others)}", "nothing: a launch would take longer"
    if cfg != PRESETS[_LARGER] and not Accelerator(PRESETS[_LARGER]).refusal(op):
        return refusals[0], f"--config {_LARGER}"
    return refusals[0], "a kernel of this operator (docs/kernels.md)"
