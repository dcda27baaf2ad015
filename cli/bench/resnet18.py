"""`tilewright bench resnet18`: cycles of every layer, compared with its bounds and with VTA; table, plots, timeline."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...compiler.cost import port_bytes
from ...compiler.schedule.tiling import largest_tile
from ...compiler.tune.search import Search
from ...hw.config import Config
from ...hw.errors import CapacityError, FileError, UnsupportedError
from ...hw.isa import Isa
from ...runtime import loader
from ...runtime.files import atomic_write
from ...runtime.program import Program
from ...sim.dram import Dram
from ...sim.rtl import RtlDevice
from ...sim.rtl.watch import tiles
from ...sim.timing import Timing, predict
from ...sim.trace import Event, of_timing, of_trace, write_chrome
from .. import report
from .layers import (
    EXTRA,
    VTA_MS,
    BenchLayer,
    bounds,
    convolutions,
    convolutions_data,
    data,
    has_tiles,
    layers,
    program,
    work_of,
)
from .measure import Bench, Row, check_names
from .measure import row as counted_row

SHRUNK = 8  # `--compare tilings` also divides the buffers by this
MOSTLY = 0.5  # share of load cycles under GEMM from which a tile counts as hidden
_MHZ = 100  # of the PYNQ-Z1, which the published milliseconds are for
_LOADS = ("LOAD.INP", "LOADP.INP", "LOAD.WGT", "LOADP.WGT")
_ADDED = ("cycles", "ideal", "roofline", "one_thread", "largest_tile", "shrunk", "shrunk_largest_tile")


def run(bench: Bench, names: tuple[str, ...]) -> bool:
    """Measure, print, and write files; returns whether all results are exact."""
    if bench.compare and bench.name == "model":
        raise UnsupportedError("--compare: device 'model' counts no cycles; use --on timing or --on rtl")
    known = {layer.name: [layer] for layer in layers()}
    for layer in layers():  # a shape's name, as tables and plots have it, stands for all layers of the shape
        if layer.name != layer.shape_name:
            known.setdefault(layer.shape_name, []).append(layer)
    check_names(names, known)
    if bench.out is not None:  # before minutes of work
        _make_folder(Path(bench.out))
    chosen = [layer for name in names for layer in known[name]] or layers()
    measured = _Measured(bench)
    with report.progress("compiling and running", len(chosen)) as advance:
        for layer in chosen:
            advance(0, layer.name)
            measured.measure(layer)
            advance()
    rows, about = measured.rows, dict[str, Any]()
    network = [row for row in rows if row["name"] != EXTRA]
    sums = {"total": _sum(network), "offloaded": _sum([row for row in network if row["offloaded"]])}
    if not names and bench.cfg.block_in == bench.cfg.block_out:  # else a layer's output is no input as it lies
        sums["one_program"] = measured.one_program(sums["offloaded"])
    if bench.out is not None:
        about["files"] = write_files(Path(bench.out), rows, bench.cfg, bench.dram, measured.runs)
    bench.finish(rows, lambda: _print(rows, sums, about, bench), about, sums)
    return all(row["exact"] for row in [*rows, *([sums["one_program"]] if "one_program" in sums else [])])


class _Measured:
    """Measures layers and keeps the results: `rows`, ready for JSON, and the events of each shape, `runs`."""

    def __init__(self, bench: Bench):
        self.bench, self.cfg, self.dram, self.skip = bench, bench.cfg, bench.dram, bench.skip
        self.device = bench.open()
        self.rows: list[Row] = []
        self.runs: list[tuple[str, int, list[Event]]] = []
        self._known: dict[str, Row] = {}  # shapes that occur again are measured once

    def measure(self, layer: BenchLayer) -> None:
        """Run the layer, unless one of its shape was run already."""
        key = layer.shape_name
        if key not in self._known:
            self._known[key] = self._measured(layer)
        self.rows.append({"name": layer.name, "op": layer.op} | self._known[key] | {"offloaded": layer.offloaded})

    def _measured(self, layer: BenchLayer) -> Row:
        made = self._build(layer, self.cfg)
        inputs, expected = data(layer, self.cfg)
        found, stats = loader.run(made, inputs, self.device)
        self.bench.profile.add(layer.shape_name, made.finish(), stats)
        limits = bounds(layer, self.cfg, self.dram)
        exact = bool(np.array_equal(found["out"], expected))
        instructions = len(made.finish().insn)
        row = counted_row(self.cfg, stats, macs=layer.macs, instructions=instructions, exact=exact) | {
            "roofline": max(limits.values()),
            "roofline_of": max(limits, key=lambda name: limits[name]),
            "vta_cycles": None,
        }
        if layer.shape_name in VTA_MS and not self.skip:  # VTA's times include what --skip leaves out
            row["vta_cycles"] = round(VTA_MS[layer.shape_name] * 1000 * _MHZ)
        if self.bench.name != "model":
            row |= _rates(row, self.cfg, self.dram) | self._overlap(layer, made, row["cycles"]) | self._compared(layer)
        return row

    def _overlap(self, layer: BenchLayer, made: Program, cycles: int) -> Row:
        """Overlap of the loads of inputs and weights with GEMM, from the circuit or the timing model."""
        if not isinstance(self.device, RtlDevice):
            timing = predict(made, dram=self.dram, skip=self.skip)
            self.runs.append((layer.shape_name, cycles, of_timing(timing, made.finish(), self.cfg)))
            return {"loads_beside_gemm": _loads_beside_gemm(made, timing)}
        words, trace = made.finish().insn, self.device.trace
        self.runs.append((layer.shape_name, cycles, of_trace(trace, words, self.cfg)))
        found = tiles(Isa(self.cfg), words, trace)
        total = sum(tile.cycles for tile in found)
        return {
            "loads_beside_gemm": sum(tile.products for tile in found) / total if total else None,
            "tiles": len(found),
            "tiles_beside_gemm": sum(tile.hidden >= MOSTLY for tile in found),
        }

    def _build(self, layer: BenchLayer, cfg: Config, **tiling: Any) -> Program:
        if has_tiles(layer, cfg) and not tiling:
            tiling = {"search": Search(dram=self.dram)}
        return program(layer, cfg, **tiling)

    def _compared(self, layer: BenchLayer) -> Row:
        found: Row = {}
        if not has_tiles(layer, self.cfg):
            return found
        if "threads" in self.bench.compare:
            found["one_thread"] = self._cycles(layer, self.cfg, vthreads=1)
        if "tiles" in self.bench.compare:
            found["largest_tile"] = self._cycles(layer, self.cfg, largest=True)
            small = shrunk(self.cfg)
            found["shrunk"] = self._cycles(layer, small)
            found["shrunk_largest_tile"] = self._cycles(layer, small, largest=True)
        return found

    def _cycles(self, layer: BenchLayer, cfg: Config, *, largest: bool = False, **tiling: Any) -> int | None:
        """Cycles of another program of the layer, by the timing model; None if it does not fit."""
        try:
            if largest:
                tiling["tile"] = largest_tile(work_of(layer, cfg), cfg)
            return predict(self._build(layer, cfg, **tiling), dram=self.dram, skip=self.skip).cycles
        except CapacityError:
            return None

    def one_program(self, alone: Row) -> Row:
        """The convolutions that VTA runs as a single program; `alone` are the sums of their separate runs."""
        made = convolutions(self.cfg, search=Search(dram=self.dram))
        inputs, expected = convolutions_data(self.cfg)
        found, stats = loader.run(made, inputs, self.device)
        exact = all(np.array_equal(found[name], array) for name, array in expected.items())
        row = {"cycles": stats.cycles, "ideal": alone["ideal"], "roofline": alone["roofline"]}
        return row | {"instructions": len(made.finish().insn), "exact": exact}


def shrunk(cfg: Config) -> Config:
    """`cfg` with smaller scratchpads for inputs, weights and accumulators."""
    sizes = {f"{mem}_bytes": getattr(cfg, f"{mem}_bytes") // SHRUNK for mem in ("inp", "wgt", "acc")}
    return cfg.replace(name=f"{cfg.name}/{SHRUNK}", **sizes)


def _rates(row: Row, cfg: Config, dram: Dram) -> Row:
    cycles, each = row["cycles"], port_bytes(cfg, dram)
    busy = {
        "gemm": row["gemm_busy"],
        "other": row["other_busy"],
        "load": row["load_bytes"] / (cfg.load_ports * each),
        "store": row["store_bytes"] / (cfg.store_ports * each),
    }
    return {
        "bound": max(busy, key=lambda name: busy[name]),
        "of_roofline": cycles / row["roofline"],
        "speedup": row["vta_cycles"] / cycles if row["vta_cycles"] else None,
    }


def _loads_beside_gemm(made: Program, timing: Timing) -> float | None:
    """Share of the transfers of inputs and weights during which a GEMM runs, by the timing model."""
    isa = Isa(made.cfg)
    names = np.array([isa.mnemonic(fields) for fields in isa.decode(made.finish().insn)])
    gemm, loads = np.isin(names, ("GEMM", "DWGEMM")), np.isin(names, _LOADS)
    busy = np.zeros(timing.cycles + 2, np.int64)
    np.add.at(busy, timing.start[gemm], 1)
    np.add.at(busy, timing.end[gemm] + 1, -1)
    before = np.concatenate([[0], np.cumsum(np.cumsum(busy) > 0)])
    beside = before[timing.end[loads] + 1] - before[timing.start[loads]]
    total = (timing.end[loads] + 1 - timing.start[loads]).sum()
    return float(beside.sum() / total) if total else None


def _sum(rows: list[Row]) -> Row:
    return {
        key: sum(row[key] for row in rows) for key in _ADDED if rows and all(row.get(key) is not None for row in rows)
    }


def _print(rows: list[Row], sums: dict[str, Row], about: Row, bench: Bench) -> None:
    clocked = rows[0]["cycles"] is not None
    if clocked:
        report.table(*_table(rows, sums["total"]))
    else:
        keys = ("name", "op", "gemm_busy", "other_busy", "load_bytes", "store_bytes", "instructions", "exact")
        report.records([{key.replace("_", " "): row[key] for key in keys} for row in rows])
    text = f"configuration {bench.cfg.name}, batch 1, DRAM {bench.dram.name}, on {bench.name}, simulated"
    report.say(text + (f"; {', '.join(sorted(bench.skip))} without time" if bench.skip else ""))
    offloaded = sums["offloaded"]
    if clocked and offloaded.get("cycles"):
        cycles = offloaded["cycles"]
        count = sum(row["offloaded"] for row in rows)
        text = f"{report.counted(count, 'offloaded convolution')}: {cycles:,} cycles, ideal {offloaded['ideal']:,.0f}"
        text += f" ({100 * offloaded['ideal'] / cycles:.1f} %)"
        if not bench.skip:
            vta = sum(row["vta_cycles"] for row in rows if row["offloaded"])
            text += f"; VTA on the PYNQ-Z1, published: {vta:,} ({vta / cycles:.2f} times as many)"
        report.say(text)
    if clocked and "one_program" in sums:
        one = sums["one_program"]
        share = one["cycles"] / one["roofline"]
        exact = "exact" if one["exact"] else "NOT exact"
        report.say(f"as one program: {one['cycles']:,} cycles, {share:.3f} of the rooflines' sum, {exact}")
    if clocked and "threads" in bench.compare:
        _compare(rows, {"cycles": "cycles", "one_thread": "one thread"})
    if clocked and "tiles" in bench.compare:
        _compare(rows, {"cycles": "cycles", "largest_tile": "largest tile"})
        _compare(rows, {"shrunk": f"buffers / {SHRUNK}", "shrunk_largest_tile": "largest tile"})
    for file in about.get("files", []):
        report.say(f"wrote {file}")


def _table(rows: list[Row], total: Row) -> tuple[list[str], list[list[object]], list[object]]:
    columns = ["layer", "op", "cycles", "GEMM %", "bytes/cycle", "loads hidden %", "tiles hidden", "bound by"]
    columns += ["roofline", "x roofline", "VTA, PYNQ", "x VTA", "instructions", "exact"]
    cells = [
        [
            row["name"],
            row["op"],
            row["cycles"],
            100 * row["utilisation"],
            row["bytes_per_cycle"],
            "" if row["loads_beside_gemm"] is None else 100 * row["loads_beside_gemm"],
            f"{row['tiles_beside_gemm']} of {row['tiles']}" if row.get("tiles") else "",
            row["bound"],
            round(row["roofline"]),
            row["of_roofline"],
            row["vta_cycles"] or "",
            row["speedup"] or "",
            row["instructions"],
            row["exact"],
        ]
        for row in rows
    ]
    if not total:  # of C3 alone
        return columns, cells, []
    cycles, roofline = total["cycles"], total["roofline"]
    last = [f"total without {EXTRA}", "", cycles, 100 * total["ideal"] / cycles, *[""] * 4]
    last += [round(roofline), cycles / roofline, "", ""]
    return columns, cells, [*last, sum(row["instructions"] for row in rows if row["name"] != EXTRA), ""]


def _compare(rows: list[Row], columns: dict[str, str]) -> None:
    """Print the cycles in two columns, and the ratio of the second to the first."""
    first, second = columns
    cells = []
    for name, row in {row["name"].split(".")[0]: row for row in rows if second in row}.items():
        ratio = row[second] / row[first] if row[first] and row[second] else ""
        cells.append([name, *(row[key] or "does not fit" for key in columns), ratio])
    report.table(["shape", *columns.values(), "gain"], cells)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{folder}: cannot create this folder ({exc.strerror})") from None


def write_files(
    folder: Path, rows: Sequence[Row], cfg: Config, dram: Dram, runs: Sequence[tuple[str, int, Sequence[Event]]]
) -> list[str]:
    """Write layers.csv with the first row's keys as columns, and where there are cycles, the roofline and the timeline.

    `dram` is the memory, whose bandwidth limits the roofline; `runs` are (name, cycles, events). Returns the paths, all
    in `folder`, which must exist. Raises `FileError` if writing fails.
    """
    written = [folder / "layers.csv"]
    with atomic_write(written[0]) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    if rows[0]["cycles"] is not None:
        points = [row for row in rows if row["macs"]]
        written += [_roofline(folder / f"roofline.{kind}", points, cfg, dram) for kind in ("png", "svg") if points]
        written.append(_timeline(folder / "timeline.json", runs))
    return [str(path) for path in written]


def _roofline(path: Path, rows: Sequence[Row], cfg: Config, dram: Dram) -> Path:
    """Plot each layer's multiply-accumulates per cycle over those per byte, with the limits of compute and memory."""
    from matplotlib.figure import Figure

    one, ports = port_bytes(cfg, dram), cfg.load_ports + cfg.store_ports
    every = min(dram.total_bytes, ports * one)
    shapes = {row["name"].split(".")[0]: row for row in rows}
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="multiply-accumulates per byte moved")
    axes.set_ylabel("multiply-accumulates per cycle")
    peak = cfg.macs_per_cycle
    intensity = {name: row["macs"] / (row["load_bytes"] + row["store_bytes"]) for name, row in shapes.items()}
    ends = min([*intensity.values(), peak / one]) / 2, max([*intensity.values(), peak / one]) * 2
    for width, text in ((one, "one port"), (every, "both ports" if ports == 2 else f"{ports} ports")):
        knee = peak / width
        axes.plot([ends[0], knee], [ends[0] * width, peak], label=f"{width} bytes per cycle, {text}")
    axes.plot([peak / every, ends[1]], [peak, peak], label=f"{peak} per cycle, {cfg.name}")
    for name, row in shapes.items():
        x, y = intensity[name], row["macs"] / row["cycles"]
        axes.plot([x], [y], "o", color="black", markersize=4)
        axes.annotate(name, (x, y), xytext=(4, -9), textcoords="offset points", fontsize=8)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    report.save_figure(figure, path)
    return path


def _timeline(path: Path, runs: Sequence[tuple[str, int, Sequence[Event]]]) -> Path:
    """Write the activity of every unit in every cycle, program after program, for ui.perfetto.dev."""
    events, now = [], 0
    for name, cycles, found in runs:
        events.append(Event("layer", name, now, now + cycles))
        events += [replace(event, start=event.start + now, end=event.end + now) for event in found]
        now += cycles
    write_chrome(path, events, "ResNet-18")
    return path
