"""What ran on the accelerator, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compiler.tvm_compat import IRModule, ir, structural_walk
from ...hw.errors import InputError
from ...runtime.device import Stats
from ...runtime.loader import StepReport
from .runner import KEY, held

LEFT = "tilewright.left"  # attribute of a module: why integers in it are not on the accelerator


@dataclass(frozen=True)
class PartReport:
    """One part of a module: its name, its device, its runs in this process, and the steps of the last one.

    `contract` is the rounding contract, None before the first run.
    """

    name: str
    on: str
    runs: int
    steps: tuple[StepReport, ...]
    contract: str | None

    @property
    def stats(self) -> Stats:
        """Counts of the last run."""
        return sum((step.stats for step in self.steps), Stats())

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run; None before the first, and on devices without a clock."""
        return self.stats.cycles

    @property
    def host_seconds(self) -> float:
        """Time of the steps that the host computed, packing included."""
        return sum(step.seconds for step in self.steps if step.where == "host")


@dataclass(frozen=True)
class Report:
    """The parts of a module on the accelerator, in order, and reasons why integers of it are not in one."""

    parts: tuple[PartReport, ...]
    left: tuple[str, ...]

    @property
    def cycles(self) -> int | None:
        """Cycles of the last run of all parts; None where no device has a clock."""
        known = [part.cycles for part in self.parts if part.cycles is not None]
        return sum(known) if known else None


def report(compiled: Any) -> Report:
    """The parts of what `tilewright_pipeline` made: of a module, or of the executable that `tvm.compile` makes of it.

    Only a module knows what was left. Raises `InputError` for anything else.
    """
    left: tuple[str, ...] = ()
    if isinstance(compiled, IRModule):
        left = tuple(map(str, (compiled.attrs or {}).get(LEFT, ())))
        keys = [key for function in compiled.functions.values() for key in _keys_in(function)]
    elif hasattr(compiled, "stats") and hasattr(compiled, "export_library"):
        keys = [match[0] for match in KEY.finditer(str(compiled.stats()))]
    else:
        raise InputError(f"a report is of an IRModule or of what tvm.compile returns, not {type(compiled).__name__}")
    return Report(tuple(map(_part, dict.fromkeys(keys))), left)


def _keys_in(function: Any) -> list[str]:
    found: list[str] = []

    def on_text(text: Any) -> None:
        if KEY.fullmatch(str(text.value)):
            found.append(str(text.value))

    structural_walk(function, [(ir.StringImm, on_text)])
    return found


def _part(key: str) -> PartReport:
    match, one = KEY.fullmatch(key), held.get(key)
    assert match
    if one is None:
        return PartReport(match[2], match[1], 0, (), None)
    return PartReport(match[2], match[1], one.runs, tuple(one.reports), one.loaded.executable.contract)
