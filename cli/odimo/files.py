"""The files of a front: its numbers as JSON, and accuracy over cycles as pictures."""

from __future__ import annotations

import json
from pathlib import Path

from ...apps.odimo.front import Front
from ...apps.odimo.jobs import SEARCH
from ...hw.errors import UnsupportedError
from ...runtime.files import atomic_write

PICTURES = ("png", "svg")
DASHES = (3, 3)


def write_front(front: Front, folder: Path) -> list[Path]:
    """Write front.json and its pictures to `folder`; returns their paths. Raises `UnsupportedError` as `plot`."""
    path = folder / "front.json"
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(front.to_json(), indent=1) + "\n")
    return [path, *(plot(front, folder / f"front.{kind}") for kind in PICTURES)]


def plot(front: Front, path: Path) -> Path:
    """Plot the mean accuracy of each point, with its range over the seeds, over the mean cycles.

    Raises `UnsupportedError` where matplotlib is missing.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise UnsupportedError(f"pictures need matplotlib ({exc}); pip install 'tilewright[plots]'") from None

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="cycles of the launch", ylabel="accuracy on the test images, %")
    for searched, marker, label in ((True, "o", "trained choice"), (False, "s", "fixed choice")):
        means = [one for one in front.means if one.name.startswith(SEARCH) == searched]
        ranges = [[m.accuracy - m.lowest for m in means], [m.highest - m.accuracy for m in means]]
        at = [m.cycles for m in means], [m.accuracy for m in means]
        axes.errorbar(*at, yerr=ranges, fmt=marker, capsize=3, label=label)
        for x, y, one in zip(*at, means):
            axes.annotate(one.name, (x, y), xytext=(5, 5), textcoords="offset points", fontsize=8)
    best = sorted((m.cycles, m.accuracy) for m in front.means if m.on_front)
    axes.plot(*zip(*best), color="grey", lw=1, dashes=DASHES, label="Pareto front")
    axes.set_title(f"{front.plan.task.name} on {front.plan.config.name}")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    kind = path.suffix[1:]
    with atomic_write(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return path
