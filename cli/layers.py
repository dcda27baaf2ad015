"""Tables of an executable's steps and of the operators inside its launches: as compiled, and as run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..runtime.device import Stats
from ..runtime.executable import Executable, HostStep, LaunchStep
from ..runtime.launch import Launch
from ..runtime.loader import StepReport
from ..runtime.steps import Step
from ..sim.profile import profile, total
from . import report

# columns of the text table of a run, those of devices with a clock, and those of --counters, by their keys in a row
_RUN = {
    "step": "step",
    "where": "where",
    "macs": "MACs",
    "instructions": "instructions",
    "bytes_loaded": "bytes loaded",
    "bytes_stored": "bytes stored",
}
_CLOCKED = {"cycles": "cycles", "gemm_use": "GEMM use", "device_ms": "device ms"}
_SECOND = {"ternary_use": "ternary use"}  # with that unit
_USES = ("gemm_use", "ternary_use")
_SECONDS = {"wall_ms": "wall ms"}
_SHOWN_NAMES = 8  # of operators in a sentence
_ON_NUMBERS = ("number_function", "number_binary", "cast", "detections")  # float32 or integers, as they come
INDENT = "  "  # of an operator below its launch
_INDICES = re.compile(r"\[[^\[\]]+\]")


def share_on_device(executable: Executable) -> float | None:
    """Share of the program's multiply-accumulates that the device does; None if it has none."""
    total = sum(step.macs for step in executable.steps)
    return sum(s.macs for s in executable.steps if isinstance(s, LaunchStep)) / total if total else None


def float_steps(executable: Executable) -> list[str]:
    """Names of the operators that the host computes in float32: those without an integer form."""
    return [s.name for s in executable.steps if isinstance(s, HostStep) and _computes_floats(s, executable)]


def _computes_floats(step: HostStep, executable: Executable) -> bool:
    """True for operators of float32 alone, and for others on float32 values, or that make such."""
    if step.op.startswith("float_"):
        return True
    stages = step.attrs["stages"] if step.op == "chain" else [[step.op, step.attrs]]
    if any(name == "cast" and attrs["dtype"] == "float32" for name, attrs in stages):
        return True
    touched = {executable.tensors[name].dtype for name in (*step.inputs, *step.outputs)}
    return "float32" in touched and any(name in _ON_NUMBERS for name, _ in stages)


def say_float_steps(names: Sequence[str]) -> None:
    """Print how many operators run in float32, and which, if any do."""

    if names:
        more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
        many = "operators run" if len(names) > 1 else "operator runs"
        report.say(f"{len(names)} {many} in float32 on the host: {', '.join(names[:_SHOWN_NAMES])}{more}")


def compiled_rows(executable: Executable) -> list[dict[str, Any]]:
    """Per step: name, where it runs, useful MACs, instructions, micro-ops in the program; per launch its operators."""
    rows = []
    for step in executable.steps:
        row: dict[str, Any] = {"step": step.name, "where": "host", "macs": step.macs}
        row |= {"instructions": 0, "micro_ops": 0}
        if isinstance(step, LaunchStep):
            row |= {"where": "device", "instructions": len(step.launch.insn), "micro_ops": len(step.launch.uops)}
            if operators := list(_compiled_operators(step.launch)):
                row["operators"] = operators
        rows.append(row)
    return rows


def _compiled_operators(launch: Launch) -> Iterator[dict[str, Any]]:
    """The operators of a launch that has several: name, useful MACs, instructions."""
    origins = launch.known_origins
    counts: dict[str, list[int]] = {}
    for path, macs, number in zip(origins.paths, origins.macs, range(len(origins.paths))):
        if path:
            count = counts.setdefault(path[0], [0, 0])
            count[0] += macs or 0
            count[1] += int((origins.of == number).sum())
    if len(counts) > 1:
        for name, (macs, instructions) in counts.items():
            yield {"operator": name, "macs": macs, "instructions": instructions}


def ran(executable: Executable, reports: Sequence[StepReport]) -> Iterator[tuple[Step, StepReport]]:
    """The steps that ran, each with its report: some run for some inputs only."""
    conditional = any(step.when is not None for step in executable.steps)
    steps = iter(executable.steps)
    for done in reports:
        yield next(step for step in steps if not conditional or step.name == done.name), done


def run_rows(executable: Executable, runs: Sequence[Sequence[StepReport]], clock: float) -> list[dict[str, Any]]:
    """Per step: counts of one run (all runs count alike), cycles of the last one, mean milliseconds over `runs`.

    The steps are those of the last run.

    Where the device has a clock, of `clock` Hz, also the milliseconds that it needs; where it is simulated, a launch
    has a row for each of its operators, under the key `operators`, or `statements` where it is a single one
    (sim/profile.py).
    """
    rows = []
    timed = any(step.stats.cycles is not None for step in runs[-1])
    for k, (planned, step) in enumerate(ran(executable, runs[-1])):
        counts = step.stats.to_dict()
        row: dict[str, Any] = {"step": step.name, "where": step.where, "macs": step.macs}
        row |= {key: counts[key] for key in ("instructions", "micro_ops", "bytes_loaded", "bytes_stored")}
        if timed:
            row |= _timed(planned, step, clock)
        times = [steps[k].seconds for steps in runs if len(steps) > k and steps[k].name == step.name]
        row["wall_ms"] = 1e3 * sum(times) / len(times)
        rows.append(row)
    return rows


def _timed(planned: Any, step: StepReport, clock: float) -> dict[str, Any]:
    cycles = step.stats.cycles or 0
    found: dict[str, Any] = {"cycles": cycles, "device_ms": 1e3 * cycles / clock}
    if step.stats.timeline is None:
        return found
    kind, timeline = "operator", step.stats.timeline()
    launch = planned.which(step.steady)
    shares = profile(launch, timeline, cycles)
    if sum(bool(share.path) for share in shares) < 2:
        kind, shares = "statement", profile(launch, timeline, cycles, depth=2)
    rows = [{kind: share.name, **share.to_dict(), "device_ms": 1e3 * share.cycles / clock} for share in shares]
    whole = total(shares).to_dict()
    found |= {key: value for key, value in whole.items() if key.startswith((*_USES, "busy_", "wait_"))}
    return found | {f"{kind}s": rows}


def counter_rows(runs: Sequence[Sequence[StepReport]]) -> list[dict[str, Any]]:
    """The device's counters in the last run: register and value, summed over launches."""
    counters = sum((step.stats for step in runs[-1]), Stats()).counters
    return [{"counter": name, "value": value} for name, value in counters.items()]


def print_run(rows: Sequence[dict[str, Any]], counters: bool = False) -> None:
    """Print the rows of `run_rows`; with `counters` also what units wait for."""
    columns = dict(_RUN)
    if any("cycles" in row for row in rows):
        columns |= _CLOCKED
    if any("ternary_use" in row for row in rows):
        columns |= _SECOND
    if counters:
        names = {key for row in rows for key in row if key.startswith(("busy_", "wait_"))}
        columns |= {key: key.replace("_", " ") for key in sorted(names)}
    _print(rows, columns | _SECONDS)


def _print(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> None:
    """Steps and the operators below them, and a last row that adds up the steps."""
    if not rows:
        return
    cells = []
    for row in rows:
        cells.append([_cell(row, key) for key in columns])
        for kind in ("operator", "statement"):
            for one in row.get(f"{kind}s", ()):
                name = INDENT + short_name(one[kind])
                cells.append([_cell({"step": name, "where": "", **one}, key) for key in columns])
    sums: list[object] = ["total", ""]
    for key in list(columns)[2:]:
        sums.append("" if key in _USES else _cell({key: sum(row.get(key, 0) for row in rows), "where": ""}, key))
    report.table(list(columns.values()), cells, sums)


def _cell(row: dict[str, Any], key: str) -> object:
    value = row.get(key, "")
    if key in _USES and value != "":
        return f"{100 * value:.1f} %" if row["cycles"] else ""
    if key == "device_ms" and value != "":
        return f"{value:.3f}"
    return "" if value == 0 and row["where"] == "host" else value  # host steps have no values in these columns


def short_name(statement: str) -> str:
    """The name of a statement without its indices, which are too long for a table; other names stay."""
    return _INDICES.sub("[...]", statement)


def print_compiled(executable: Executable) -> None:
    """Print the steps, and the device's share of the multiply-accumulates."""

    keys = ("step", "where", "macs", "instructions", "micro_ops")
    _print(compiled_rows(executable), {key: _RUN.get(key, key.replace("_", "-")) for key in keys})
    report.say_contract(executable.contract)
    share = share_on_device(executable)
    if share is not None:
        report.say(f"{100 * share:.1f} % of the multiply-accumulates run on the device")
    say_float_steps(float_steps(executable))
