"""`tilewright bench resnet18`: cycles of every layer, compared with its bounds and with VTA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import report
from . import rows as bench_rows

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...runtime.program import Program
    from ...sim.dram import Dram
    from ...sim.timing import Timing
    from ...sim.trace import Event
    from .layers import BenchLayer

SHRUNK = 8  # `--compare tilings` also divides the buffers by this
MOSTLY = 0.5  # share of load cycles under GEMM from which a tile counts as hidden
_MHZ = 100  # of the PYNQ-Z1, which the published milliseconds are for


def run(
    names: tuple[str, ...], bench: bench_rows.Bench, compare: tuple[str, ...], out: str | None, as_json: bool
) -> int:
    """Measure, print, and write files; the exit status."""
    from ...hw.errors import UnsupportedError
    from .files import make_folder, write_all
    from .network import layers

    if compare and bench.name == "model":
        raise UnsupportedError("--compare: device 'model' counts no cycles; use --on timing or --on rtl")
    known = {layer.name: [layer] for layer in layers()}
    for layer in layers():  # a shape's name, as tables and plots have it, stands for all layers of the shape
        if layer.name != layer.shape_name:
            known.setdefault(layer.shape_name, []).append(layer)
    bench_rows.check_names(names, known)
    if out is not None:  # before minutes of work
        make_folder(Path(out))
    chosen = [layer for name in names for layer in known[name]] or layers()
    measured = _Resnet18Bench(bench, compare)
    with report.progress("compiling and running", len(chosen)) as advance:
        for layer in chosen:
            advance(0, layer.name)
            measured.measure(layer)
            advance()
    rows, sums = measured.rows, measured.totals()
    if not names:
        sums["one_program"] = measured.one_program(sums["offloaded"])
    facts = bench.facts("resnet18")
    if out is not None:
        facts["files"] = write_all(Path(out), rows, bench.cfg, bench.dram, measured.runs)
    facts |= bench.profile.write("resnet18", facts | {"layers": rows} | sums)
    if as_json:
        bench_rows.emit(facts, rows, sums)
    else:
        _print(rows, sums, facts, compare)
        bench.say(facts)
    return int(not all(row["exact"] for row in [*rows, *([sums["one_program"]] if "one_program" in sums else [])]))


class _Resnet18Bench:
    """Measures layers and keeps the results: `rows`, ready for JSON, and the events of each shape, `runs`."""

    def __init__(self, bench: bench_rows.Bench, compare: tuple[str, ...]):
        self.cfg, self.compare, self.clocked = bench.cfg, compare, bench.name != "model"
        self.skip, self.dram, self.profile = bench.skip, bench.dram, bench.profile
        self.device = bench.open()
        self.rows: list[dict[str, Any]] = []
        self.runs: list[tuple[str, int, list[Event]]] = []
        self._known: dict[str, dict[str, Any]] = {}  # shapes that occur again are measured once

    def measure(self, layer: BenchLayer) -> None:
        """Run the layer, unless one of its shape was run already."""
        from .network import is_offloaded

        key = layer.shape_name
        if key not in self._known:
            self._known[key] = self._measured(layer)
        self.rows.append({"name": layer.name, "op": layer.op} | self._known[key] | {"offloaded": is_offloaded(layer)})

    def _measured(self, layer: BenchLayer) -> dict[str, Any]:
        import numpy as np

        from ...runtime import loader
        from .network import VTA_MS, bounds, data

        program = self._build(layer, self.cfg)
        inputs, expected = data(layer, self.cfg)
        found, stats = loader.run(program, inputs, self.device)
        self.profile.add(layer.shape_name, program.finish(), stats)
        limits = bounds(layer, self.cfg, self.dram)
        exact = bool(np.array_equal(found["out"], expected))
        row = bench_rows.row(self.cfg, stats, macs=layer.macs, instructions=len(program.finish().insn), exact=exact) | {
            "roofline": max(limits.values()),
            "roofline_of": max(limits, key=lambda name: limits[name]),
            "vta_cycles": None,
        }
        if layer.shape_name in VTA_MS and not self.skip:  # VTA's times include what --skip leaves out
            row["vta_cycles"] = round(VTA_MS[layer.shape_name] * 1000 * _MHZ)
        if self.clocked:
            row |= (
                _rates(row, self.cfg, self.dram) | self._overlap(layer, program, row["cycles"]) | self._compared(layer)
            )
        return row

    def _overlap(self, layer: BenchLayer, program: Program, cycles: int) -> dict[str, Any]:
        """Overlap of the loads of inputs and weights with GEMM, from the circuit or the timing model."""
        from ...hw.isa import Isa
        from ...sim.rtl import RtlDevice
        from ...sim.rtl.watch import tiles
        from ...sim.timing import predict
        from ...sim.trace import of_timing, of_trace

        if not isinstance(self.device, RtlDevice):
            timing = predict(program, dram=self.dram, skip=self.skip)
            self.runs.append((layer.shape_name, cycles, of_timing(timing, program.finish(), self.cfg)))
            return {"loads_beside_gemm": _loads_beside_gemm(program, timing)}
        words, trace = program.finish().insn, self.device.trace
        self.runs.append((layer.shape_name, cycles, of_trace(trace, words, self.cfg)))
        found = tiles(Isa(self.cfg), words, trace)
        total = sum(tile.cycles for tile in found)
        return {
            "loads_beside_gemm": sum(tile.products for tile in found) / total if total else None,
            "tiles": len(found),
            "tiles_beside_gemm": sum(tile.hidden >= MOSTLY for tile in found),
        }

    def _build(self, layer: BenchLayer, cfg: Config, **tiling: Any) -> Program:
        from .network import has_tiles, program

        if has_tiles(layer, cfg) and not tiling:
            tiling = {"search": self._search()}
        return program(layer, cfg, **tiling)

    def _search(self):
        from ...compiler.tune.search import Search

        return Search(dram=self.dram)

    def _compared(self, layer: BenchLayer) -> dict[str, Any]:
        from .network import has_tiles

        found: dict[str, Any] = {}
        if not has_tiles(layer, self.cfg):
            return found
        if "threads" in self.compare:
            found["one_thread"] = self._cycles(layer, self.cfg, vthreads=1)
        if "tiles" in self.compare:
            found["largest_tile"] = self._cycles(layer, self.cfg, largest=True)
            small = shrunk(self.cfg)
            found["shrunk"] = self._cycles(layer, small)
            found["shrunk_largest_tile"] = self._cycles(layer, small, largest=True)
        return found

    def _cycles(self, layer: BenchLayer, cfg: Config, *, largest: bool = False, **tiling: Any) -> int | None:
        """Cycles of another program of the layer, by the timing model; None if it does not fit."""
        from ...compiler.schedule.tiling import largest_tile
        from ...hw.errors import CapacityError
        from ...sim.timing import predict
        from .network import work_of

        try:
            if largest:
                tiling["tile"] = largest_tile(work_of(layer, cfg), cfg)
            return predict(self._build(layer, cfg, **tiling), dram=self.dram, skip=self.skip).cycles
        except CapacityError:
            return None

    def one_program(self, apart: dict[str, Any]) -> dict[str, Any]:
        """The convolutions that VTA runs as a single program; `apart` are the sums of their separate runs."""
        import numpy as np

        from ...runtime import loader
        from .network import convolutions, convolutions_data

        program = convolutions(self.cfg, search=self._search())
        inputs, expected = convolutions_data(self.cfg)
        found, stats = loader.run(program, inputs, self.device)
        exact = all(np.array_equal(found[name], array) for name, array in expected.items())
        row = {"cycles": stats.cycles, "ideal": apart["ideal"], "roofline": apart["roofline"]}
        return row | {"instructions": len(program.finish().insn), "exact": exact}

    def totals(self) -> dict[str, Any]:
        """Sums over the network, and over the convolutions that VTA runs."""
        network = [row for row in self.rows if row["name"] != "C3"]
        return {"total": _sum(network), "offloaded": _sum([row for row in network if row["offloaded"]])}


def shrunk(cfg: Config) -> Config:
    """`cfg` with smaller scratchpads for inputs, weights and accumulators."""
    sizes = {f"{mem}_bytes": getattr(cfg, f"{mem}_bytes") // SHRUNK for mem in ("inp", "wgt", "acc")}
    return cfg.replace(name=f"{cfg.name}/{SHRUNK}", **sizes)


def _rates(row: dict[str, Any], cfg: Config, dram: Dram) -> dict[str, Any]:
    from ...compiler.cost import port_bytes

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


def _loads_beside_gemm(program: Program, timing: Timing) -> float | None:
    """Share of the transfers of inputs and weights during which a GEMM runs, by the timing model."""
    import numpy as np

    from ...hw.isa import Isa

    isa = Isa(program.cfg)
    names = np.array([isa.mnemonic(fields) for fields in isa.decode(program.finish().insn)])
    gemm, loads = np.isin(names, ("GEMM", "DWGEMM")), np.isin(names, ("LOAD.INP", "LOADP.INP", "LOAD.WGT", "LOADP.WGT"))
    busy = np.zeros(timing.cycles + 2, np.int64)
    np.add.at(busy, timing.start[gemm], 1)
    np.add.at(busy, timing.end[gemm] + 1, -1)
    before = np.concatenate([[0], np.cumsum(np.cumsum(busy) > 0)])
    beside = before[timing.end[loads] + 1] - before[timing.start[loads]]
    total = (timing.end[loads] + 1 - timing.start[loads]).sum()
    return float(beside.sum() / total) if total else None


def _sum(rows: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("cycles", "ideal", "roofline", "one_thread", "largest_tile", "shrunk", "shrunk_largest_tile")
    return {
        key: sum(row[key] for row in rows) for key in keys if rows and all(row.get(key) is not None for row in rows)
    }


def _print(rows: list[dict[str, Any]], sums: dict[str, Any], facts: dict[str, Any], compare: tuple[str, ...]) -> None:
    clocked = rows[0]["cycles"] is not None
    if clocked:
        report.table(*_table(rows, sums["total"]))
    else:
        report.table(*_plain_table(rows))
    text = f"configuration {facts['config']}, batch 1, DRAM {facts['dram']}, on {facts['device']}, simulated"
    report.say(text + (f"; {', '.join(facts['skip'])} without time" if facts["skip"] else ""))
    offloaded = sums["offloaded"]
    if clocked and offloaded.get("cycles"):
        cycles = offloaded["cycles"]
        count = sum(row["offloaded"] for row in rows)
        text = f"{report.counted(count, 'offloaded convolution')}: {cycles:,} cycles, ideal {offloaded['ideal']:,.0f}"
        text += f" ({100 * offloaded['ideal'] / cycles:.1f} %)"
        if not facts["skip"]:
            vta = sum(row["vta_cycles"] for row in rows if row["offloaded"])
            text += f"; VTA on the PYNQ-Z1, published: {vta:,} ({vta / cycles:.2f} times as many)"
        report.say(text)
    if clocked and "one_program" in sums:
        one = sums["one_program"]
        text = (
            f"as one program: {one['cycles']:,} cycles, {one['cycles'] / one['roofline']:.3f} of the rooflines' sum, "
        )
        report.say(text + ("exact" if one["exact"] else "NOT exact"))
    if clocked and "threads" in compare:
        report.table(*_comparison(rows, {"one_thread": "one thread"}))
    if clocked and "tiles" in compare:
        columns = {"largest_tile": "largest tile"}
        report.table(*_comparison(rows, columns))
        columns = {"shrunk": f"buffers / {SHRUNK}", "shrunk_largest_tile": "largest tile"}
        report.table(*_comparison(rows, columns))
    for file in facts.get("files", []):
        report.say(f"wrote {file}")


def _table(rows: list[dict[str, Any]], total: dict[str, Any]) -> tuple[list[str], list[list[object]], list[object]]:
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
    last = [
        "total without C3",
        "",
        cycles,
        100 * total["ideal"] / cycles,
        *[""] * 4,
        round(roofline),
        cycles / roofline,
    ]
    return columns, cells, [*last, "", "", sum(row["instructions"] for row in rows if row["name"] != "C3"), ""]


def _plain_table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[object]]]:
    keys = ("name", "op", "gemm_busy", "other_busy", "load_bytes", "store_bytes", "instructions", "exact")
    return [key.replace("_", " ") for key in keys], [[row[key] for key in keys] for row in rows]


def _comparison(rows: list[dict[str, Any]], columns: dict[str, str]) -> tuple[list[str], list[list[object]]]:
    """Cycles in the columns, and the ratio of the last to the first."""
    keys = ["cycles", *columns] if len(columns) == 1 else list(columns)
    names = ["cycles", *columns.values()] if len(columns) == 1 else list(columns.values())
    cells = []
    for row in {row["name"].split(".")[0]: row for row in rows if keys[-1] in row}.values():
        first, last = row[keys[0]], row[keys[-1]]
        ratio = last / first if first and last else ""
        cells.append([row["name"].split(".")[0], *(row[key] or "does not fit" for key in keys), ratio])
    return ["shape", *names, "gain"], cells
