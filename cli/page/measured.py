"""Tables of a run: operators, the summary with the source of each number, and the limits of the machine.

Everything comes from the verbs that print it, too: cycles of operators from `run`, reasons from `assign`, losses and
occupancy from `explain`. Nothing is counted a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...apps.explore.area import area_of
from ...compiler.target.host import HostModel
from ...hw.config import Config
from ...runtime.device import Stats
from ...runtime.executable import Executable, LaunchStep
from ...runtime.launch import Launch
from ...runtime.loader import StepReport
from ...runtime.steps import Step
from ...sim.dram import Dram, bandwidths
from ...sim.losses import explain, merged
from ...sim.statements import occupancy
from ..assign import COLUMNS, choice_row
from ..breaks import breaks
from ..layers import compiled_rows, ran, run_rows, short_name

if TYPE_CHECKING:
    from ...compiler.network import Compiled

NOBODY = "launch"  # the row of what belongs to no operator: the ends of a launch
_COUNTED = "counted in the program"


def clock_source(device: str) -> str:
    """Source of the cycles of a run on `device`."""
    known = {
        "timing": "timing model (simulated)",
        "rtl": "circuit, simulated cycle by cycle: register CYCLES",
        "rtl_fast": "circuit, simulated cycle by cycle: register CYCLES",
    }
    return known.get(device, f"register CYCLES of device {device}")


def operators(
    executable: Executable, reports: Sequence[StepReport], clock: float, compiled: Compiled | None
) -> list[dict[str, Any]]:
    """A row per operator, in the order of the program. The cycles add up to the cycles of all launches.

    `us` of the host's rows are modelled, None where the network is not known. Of a launch without cycles of its
    instructions there is what is known of it.
    """
    kinds = {} if compiled is None else {op.name: type(op).__name__ for op in compiled.assignment.graph.ops}
    modelled = host_microseconds(compiled)
    by_step, found = {row["step"]: row for row in compiled_rows(executable)}, []
    for (step, _), row in zip(ran(executable, reports), run_rows(executable, [reports], clock)):
        if isinstance(step, LaunchStep):
            for inner in row.get("operators") or row.get("statements") or by_step[step.name].get("operators") or [row]:
                found.append(_device_row(step.name, inner, kinds, clock))
        else:
            kind, us = kinds.get(step.name, step.op), modelled.get(step.name)
            found.append({"operator": step.name, "kind": kind, "where": "host", "macs": step.macs, "us": us})
    total = sum(row.get("cycles") or 0 for row in found)
    for row in found:
        if row.get("cycles") is not None:
            row["share"] = row["cycles"] / total if total else 0.0
    return found


def _device_row(launch: str, inner: dict[str, Any], kinds: dict[str, str], clock: float) -> dict[str, Any]:
    name = inner.get("operator") or inner.get("statement") or inner["step"]
    kind = "" if name == NOBODY else kinds.get(name, "statement" if "statement" in inner else "")
    row: dict[str, Any] = {"operator": short_name(name), "kind": kind, "where": "device", "launch": launch}
    kept = ("macs", "instructions", "bytes_loaded", "bytes_stored", "cycles", "gemm_use", "ternary_use")
    row |= {key: inner[key] for key in kept if key in inner}
    row |= {key: value for key, value in inner.items() if key.startswith(("busy_", "wait_"))}
    if cycles := row.get("cycles"):
        row["us"] = 1e6 * cycles / clock
        row["macs_per_cycle"] = row["macs"] / cycles
    return row


def host_microseconds(compiled: Compiled | None) -> dict[str, float]:
    """Modelled time of each step of the host, by name; empty where the network is not known."""
    if compiled is None:
        return {}
    return {step.name: 1e6 * seconds for step, seconds in compiled.host_steps(HostModel())}


def instruction_rows(rows: Sequence[dict[str, Any]], step: LaunchStep) -> list[int]:
    """For each instruction of the launch `step`, the index in `rows` of its operator."""
    mine = {row["operator"]: k for k, row in enumerate(rows) if row.get("launch") == step.name}
    origins = step.launch.known_origins
    single = len({path[0] for path in origins.paths if path} & mine.keys()) < 2
    at = []
    for path in origins.paths:
        names = [*path[:2]][::-1] if single else [*path[:1]]
        known = [mine[short_name(name)] for name in names if short_name(name) in mine]
        at.append(known[0] if known else mine.get(NOBODY, next(iter(mine.values()))))
    return [at[k] for k in origins.of.tolist()]


def peak_macs(cfg: Config) -> int:
    """Multiply-accumulates per cycle of all compute units."""
    return cfg.macs_per_cycle * (1 + (cfg.ternary_blocks if "ternary" in cfg.units else 0))


def roofline(cfg: Config, dram: Dram | None, rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The limits, and a point per operator with products; None without cycles.

    The time of a point is that of the operator's own cycles, or of its busiest unit where that is more: loads that run
    beside the operator before take no cycles of their own, but the port was busy with them.
    """
    if dram is None or not any(row.get("cycles") for row in rows):
        return None
    points = []
    for row in rows:
        moved = row.get("bytes_loaded", 0) + row.get("bytes_stored", 0)
        if not row.get("cycles") or not row["macs"] or not moved:
            continue
        cycles = max([row["cycles"], *(n for key, n in row.items() if key.startswith("busy_"))])
        point = {"operator": row["operator"], "cycles": cycles, "macs_per_byte": row["macs"] / moved}
        points.append(point | {"macs_per_cycle": row["macs"] / cycles})
    return {"peak": peak_macs(cfg), "bytes_per_cycle": bandwidths(cfg, dram), "points": points}


def summary(
    executable: Executable,
    reports: Sequence[StepReport],
    rows: Sequence[dict[str, Any]],
    device: str,
    dram: Dram | None,
    clock: float,
    compiled: Compiled | None,
    counted: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """The figures of the whole, each with its unit and its source."""
    cfg, stats = executable.cfg, sum((done.stats for done in reports), Stats())
    macs = sum(row["macs"] for row in rows)
    on_device = sum(row["macs"] for row in rows if row["where"] == "device")
    useful = (
        "the network's shapes" if compiled is not None else "the program, or where it does not say GEMM's micro-ops"
    )
    found = [*_timed(stats.cycles, on_device, counted.get("gemm_use"), cfg, device, clock)]
    if compiled is not None:
        us = sum(host_microseconds(compiled).values())
        at = f"model of a Cortex-A9 at {HostModel().clock / 1e6:.0f} MHz"
        found.append(_figure("host_us", "Time on the host", us, "us", at))
    found.append(_figure("macs", "Multiply-accumulates", macs, "", useful))
    if macs:
        found.append(_figure("device_share", "Part of them on the accelerator", 100 * on_device / macs, "%", useful))
    launches = [step.launch for step, _ in ran(executable, reports) if isinstance(step, LaunchStep)]
    found += [*_moved(launches, stats, dram)]
    memory = sum(region.nbytes for region in executable.memory_plan().values())
    found.append(_figure("memory", "Device memory", memory, "bytes", "the program's regions, weights included"))
    area = area_of(cfg)
    found.append(_figure("bram", "Block RAMs (of 36 kbit)", area.bram, "", "rule from the configuration's sizes"))
    found.append(_figure("dsp", "DSPs", area.dsp, "", "rule from the configuration's sizes"))
    return found


def _figure(key: str, name: str, value: float, unit: str, source: str) -> dict[str, Any]:
    return {"key": key, "name": name, "value": value, "unit": unit, "source": source}


def _timed(
    cycles: int | None, macs: int, gemm_use: float | None, cfg: Config, device: str, clock: float
) -> Iterator[dict[str, Any]]:
    if not cycles:
        return
    source = clock_source(device)
    yield _figure("cycles", "Cycles of all launches", cycles, "cycles", source)
    at = f"these cycles, if the circuit closes at {clock / 1e6:g} MHz"
    yield _figure("device_us", "Time on the accelerator", 1e6 * cycles / clock, "us", at)
    if macs:
        quotient = "those on the accelerator, by these cycles"
        yield _figure("macs_per_cycle", "Multiply-accumulates per cycle", macs / cycles, "", quotient)
        share = 100 * macs / cycles / peak_macs(cfg)
        yield _figure("array_share", f"Part of the array's {peak_macs(cfg):,} per cycle", share, "%", quotient)
    if gemm_use is not None:
        issued = "products issued, by the cycles"
        yield _figure("gemm_use", "Cycles in which GEMM issues a product", 100 * gemm_use, "%", issued)


def _moved(launches: Sequence[Launch], stats: Stats, dram: Dram | None) -> Iterator[dict[str, Any]]:
    """Traffic, and the cycles that no schedule of these transfers and products could go below."""
    loaded, stored = stats.bytes_loaded.total(), stats.bytes_stored.total()
    yield _figure("instructions", "Instructions", stats.insns.total(), "", _COUNTED)
    yield _figure("bytes_loaded", "Loaded from DRAM", loaded, "bytes", _COUNTED)
    yield _figure("bytes_stored", "Stored to DRAM", stored, "bytes", _COUNTED)
    if not stats.cycles or dram is None:
        return
    yield _figure(
        "bytes_per_cycle", "Bytes per cycle", (loaded + stored) / stats.cycles, "", "these bytes, by the cycles"
    )
    whole = merged([explain(launch, dram) for launch in launches])
    source = f"timing model: of its launches the largest of products, loads and stores; here {whole.limit}"
    yield _figure("bound", "Cycles that these need at least", whole.bound, "cycles", source)


def placement(compiled: Compiled | None, executable: Executable, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Placement of each operator with its reason; without the network, the steps alone."""
    if compiled is None:
        steps = [{"operator": step.name, "module": _module(step)} for step in executable.steps]
        whole = "The program is one launch of the accelerator."
        why = whole if len(steps) == 1 else "A program keeps no reasons; give the network itself to see them."
        return {"why": why, "rows": steps}
    taken = {row["operator"]: row.get("us") or 0.0 for row in rows}
    found = []
    for choice in compiled.assignment.choices:
        us = sum(taken.get(op.name, 0.0) for op in choice.ops)
        found.append(dict(zip(COLUMNS, choice_row(choice, us))))
    why = "Each operator runs where its predicted time, transfers included, is least."
    return {"why": why, "rows": found, "breaks": breaks(compiled)}


def _module(step: Step) -> str:
    return "accelerator" if isinstance(step, LaunchStep) else f"host, {step.op}"


def launch_facts(step: LaunchStep, done: StepReport, dram: Dram | None) -> dict[str, Any]:
    """A launch's cycles, counters, occupancy of scratchpads, and what makes it slow."""
    launch, found = step.launch, ()
    if done.stats.timeline is not None and dram is not None:
        found = explain(launch, dram).losses
    return {
        "launch": step.name,
        "cycles": done.stats.cycles,
        "counters": dict(done.stats.counters),
        "occupancy": {name: {"entries": used, "depth": of} for name, (used, of) in occupancy(launch).items()},
        "warnings": [
            {"operator": " / ".join(map(short_name, loss.path)), "cycles": loss.cycles, "text": loss.text}
            for loss in found
        ],
    }


def buffers(executable: Executable, reports: Sequence[StepReport]) -> list[dict[str, Any]]:
    """Every buffer of the launches: its bytes, and the first and last cycle of an access, None without cycles.

    They lie one behind the other from address 0 on; a device may place them elsewhere. Equal constants, and buffers of
    one tensor, are one.
    """
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
