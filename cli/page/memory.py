"""Memory of a program: the arena of activations, and its buffers in DRAM over the cycles in which they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layers import ran

if TYPE_CHECKING:
    from ...compiler.network import Compiled
    from ...runtime.executable import Executable
    from ...runtime.loader import StepReport


def arenas(compiled: Compiled | None) -> list[dict[str, Any]]:
    """The plan of each launch's activations; none for programs whose network is not known."""
    from ...compiler.accelerator.launch import arena_plan
    from ...compiler.accelerator.module import Accelerator

    if compiled is None:
        return []
    assignment, found = compiled.assignment, []
    for module, ops in assignment.parts():
        if isinstance(module, Accelerator):
            plan = arena_plan(assignment.graph, ops, compiled.executable.cfg)
            made_by = {op.output.name: op.name for op in ops}
            buffers = [
                {
                    "name": b.name,
                    "operator": made_by.get(b.name, b.name),
                    "bytes": b.nbytes,
                    "first": b.first,
                    "last": b.last,
                    "address": plan.addresses[b.name],
                }
                for b in plan.buffers
            ]
            sizes = {"bytes": plan.nbytes, "bound": plan.bound, "method": plan.method}
            found.append({"launch": f"{ops[0].name} to {ops[-1].name}", **sizes, "buffers": buffers})
    return found


def buffers(executable: Executable, reports: Sequence[StepReport]) -> list[dict[str, Any]]:
    """Every buffer of the launches: its bytes, and the first and last cycle of an access, None without cycles.

    They lie one behind the other from address 0 on; a device may place them elsewhere. Equal constants, and buffers of
    one tensor, are one.
    """
    from ...runtime.executable import LaunchStep

    found: dict[str, dict[str, Any]] = {}
    end, now = 0, 0
    numbers = {id(step): number for number, step in enumerate(executable.steps)}
    for step, done in ran(executable, reports):
        if not isinstance(step, LaunchStep):
            continue
        timeline = done.stats.timeline() if done.stats.timeline is not None else None
        for k, buffer in enumerate(step.launch.buffers):
            region = executable.region(numbers[id(step)], buffer)
            if region not in found:
                address = -(-end // buffer.align) * buffer.align
                end = address + buffer.nbytes
                found[region] = {"name": buffer.name, "kind": buffer.kind, "bytes": buffer.nbytes, "address": address}
                found[region] |= {"first": None, "last": None}
            at = np.flatnonzero(step.launch.reloc == k)
            if timeline is not None and len(at):
                row = found[region]
                first, last = now + int(timeline.issue[at].min()), now + int(timeline.end[at].max())
                row["first"] = first if row["first"] is None else min(first, row["first"])
                row["last"] = last if row["last"] is None else max(last, row["last"])
        now += done.stats.cycles or 0
    return list(found.values())
