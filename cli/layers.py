"""Tables of an executable's steps: as compiled, and as run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import report

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from ..runtime.loader import StepReport


def share_on_device(executable: Executable) -> float | None:
    """Share of the program's multiply-accumulates that the device does; None if it has none."""
    from ..runtime.executable import LaunchStep

    total = sum(step.macs for step in executable.steps)
    return sum(s.macs for s in executable.steps if isinstance(s, LaunchStep)) / total if total else None


def compiled_rows(executable: Executable) -> list[dict[str, object]]:
    """Per step: name, where it runs, useful MACs, instructions, micro-ops in the program, constant bytes."""
    from ..runtime.executable import LaunchStep

    rows = []
    for step in executable.steps:
        row: dict[str, object] = {"step": step.name, "where": "host", "macs": step.macs}
        row |= {"instructions": 0, "micro_ops": 0}
        if isinstance(step, LaunchStep):
            row |= {"where": "device", "instructions": len(step.launch.insn), "micro_ops": len(step.launch.uops)}
        rows.append(row)
    return rows


def run_rows(runs: Sequence[Sequence[StepReport]]) -> list[dict[str, object]]:
    """Per step: counts of one run (all runs count alike), cycles of the last one, mean milliseconds over `runs`."""
    rows = []
    timed = any(step.stats.cycles is not None for step in runs[-1])
    for k, step in enumerate(runs[0]):
        counts = step.stats.to_dict()
        row: dict[str, object] = {"step": step.name, "where": step.where, "macs": step.macs}
        row |= {key: counts[key] for key in ("instructions", "micro_ops", "bytes_loaded", "bytes_stored")}
        if timed:
            row["cycles"] = runs[-1][k].stats.cycles or 0
        row["ms"] = 1e3 * sum(steps[k].seconds for steps in runs) / len(runs)
        rows.append(row)
    return rows


def print_rows(rows: Sequence[dict[str, object]]) -> None:
    """Print step rows as a table whose last row adds them up."""
    if not rows:
        return
    columns = list(rows[0])
    total = ["total", "", *(sum(_number(row[c]) for row in rows) for c in columns[2:])]
    # host steps have no values in these columns
    cells = [["" if value == 0 and row["where"] == "host" else value for value in row.values()] for row in rows]
    report.table([c.replace("_", " ") for c in columns], cells, total)


def print_compiled(executable: Executable) -> None:
    """Print the steps, and the device's share of the multiply-accumulates."""
    import click

    print_rows(compiled_rows(executable))
    share = share_on_device(executable)
    if share is not None:
        click.echo(f"{100 * share:.1f} % of the multiply-accumulates run on the device")


def _number(value: object) -> float:
    assert isinstance(value, (int, float))
    return value
