"""Files of `tilewright bench resnet18 --out`: roofline plot, table and timeline."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...sim.dram import Dram
    from ...sim.trace import Event


def make_folder(folder: Path) -> None:
    """Create `folder` if it does not exist. Raises `FileError` if that fails."""
    from ...hw.errors import FileError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{folder}: cannot create this folder ({exc.strerror})") from None


def write_all(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    cfg: Config,
    dram: Dram,
    runs: Sequence[tuple[str, int, Sequence[Event]]],
) -> list[str]:
    """Write the table and plot of `rows`, and the timeline of `runs`, which are (name, cycles, events).

    `dram` is the memory, whose bandwidth limits the plot.

    Returns the paths, all in `folder`, which must exist. Raises `FileError` if writing fails.
    """
    written = [write_table(folder / "layers.csv", rows)]
    if rows[0]["cycles"] is not None:
        points = [row for row in rows if row["macs"]]
        written += [plot_roofline(folder / f"roofline.{kind}", points, cfg, dram) for kind in ("png", "svg") if points]
        written.append(write_timeline(folder / "timeline.json", runs))
    return [str(path) for path in written]


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """One line per layer, with the keys of the first row as columns."""
    from ...runtime.files import atomic_write

    with atomic_write(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def plot_roofline(path: Path, rows: Sequence[dict[str, Any]], cfg: Config, dram: Dram) -> Path:
    """Plot each layer's multiply-accumulates per cycle over those per byte, with the limits of compute and memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ...compiler.cost import port_bytes
    from ...runtime.files import atomic_write

    one, ports = port_bytes(cfg, dram), cfg.load_ports + cfg.store_ports
    every = min(dram.total_bytes, ports * one)
    shapes = {row["name"].split(".")[0]: row for row in rows}
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
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
    with atomic_write(path) as temporary:
        figure.savefig(
            temporary, format=path.suffix[1:], dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
        )
    return path


def write_timeline(path: Path, runs: Sequence[tuple[str, int, Sequence[Event]]]) -> Path:
    """Write the activity of every unit in every cycle, program after program, for ui.perfetto.dev."""
    from ...sim.trace import Event, write_chrome

    events, now = [], 0
    for name, cycles, found in runs:
        events.append(Event("layer", name, now, now + cycles))
        events += [dataclasses.replace(event, start=event.start + now, end=event.end + now) for event in found]
        now += cycles
    write_chrome(path, events, "ResNet-18")
    return path
