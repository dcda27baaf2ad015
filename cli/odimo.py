"""`tilewright odimo`: networks trained for two compute units, their front, its files and pictures."""

from __future__ import annotations

import json
import os
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..apps.explore import cluster
from ..apps.odimo.task import ALTERNATIVES, UNIT, Recipe, Task
from ..compiler.graph import Graph
from ..compiler.jobs import Store
from ..hw.config import load_config
from ..hw.errors import FileError, UnsupportedError
from ..runtime.files import atomic_write
from . import report
from .main import THREAD_VARIABLES
from .options import config_option, json_option, scheduler_option

if TYPE_CHECKING:
    from ..apps.odimo.front import Front, Plan


STRENGTHS = {"unit": (0.005, 0.02, 0.05, 0.2, 0.7), "type": (0.003, 0.01, 0.03, 0.1)}  # by what channels choose
COLUMNS = ["point", "accuracy %", "lowest", "highest", "cycles", "of {first} %", "{second} channels %"]
COLUMNS += ["on the front", "images equal"]


@click.command()
@click.option("--model", "hook", default="", metavar="FILE.py", help="A file with model() and data(). [digits]")
@click.option(
    "--width", default=8, type=click.IntRange(min=1), show_default=True, help="Channels of the digits' network."
)
@click.option(
    "--lambda",
    "strengths",
    multiple=True,
    type=click.FloatRange(min=0),
    help="A strength of the cost; may be repeated. [0.005, 0.02, 0.05, 0.2, 0.7; types: 0.003, 0.01, 0.03, 0.1]",
)
@click.option(
    "--seeds", default=3, type=click.IntRange(min=1), show_default=True, metavar="N", help="Train every point N times."
)
@click.option(
    "--epochs",
    default="30,40,30",
    show_default=True,
    metavar="W,S,F",
    help="Epochs of warm-up, search and final training.",
)
@click.option(
    "--choice",
    default="unit",
    type=click.Choice(["unit", "type"]),
    show_default=True,
    help="What a channel chooses: its compute unit, or the type of its layer, standard or depthwise.",
)
@click.option(
    "--objective",
    default="latency",
    type=click.Choice(["latency", "energy"]),
    show_default=True,
    help="What the search trades for accuracy; energy is that of a model of power.",
)
@click.option(
    "--jobs",
    default=2,
    type=click.IntRange(min=1),
    show_default=True,
    metavar="N",
    help="Points trained at once, by Dask's workers where it is installed, else in processes; 1 works in this one.",
)
@scheduler_option
@click.option(
    "-o",
    "--output",
    default="out/odimo",
    show_default=True,
    metavar="FOLDER",
    help="Where programs, front.json and pictures go, and the results that a second start takes.",
)
@config_option("tiny_two")
@json_option
def command(
    hook: str,
    width: int,
    strengths: tuple[float, ...],
    seeds: int,
    epochs: str,
    choice: str,
    objective: str,
    jobs: int,
    scheduler: str | None,
    output: str,
    config: str,
    as_json: bool,
) -> int:
    """Train a network for two compute units, and write its front of accuracy over cycles with a program per point.

    Each output channel of a layer runs on GEMM in int8 or on unit `ternary`; which, is trained together with the
    weights, for several strengths of the cost. Beside them: all channels in int8, all ternary, first and last layer in
    int8 (io-8bit), and the fastest split (min-cost). Cycles are those of the whole launch in the timing model.
    With --choice type all are int8 on GEMM, and the channels of a convolution of several taps and as many inputs as
    outputs are standard or depthwise ones; the configuration needs extension depthwise.
    FILE.py has functions model(), a torch module, and data(), ((images, labels), (images, labels)) to train and to
    test. The status is 1 if a device's scores differ from those of torch's integers. A start that was stopped goes on.
    """
    from ..apps.odimo.front import Plan

    if choice == "type" and objective == "energy":
        raise click.UsageError(
            "--objective energy: types run on one unit, whose energy follows the cycles; leave it out"
        )
    task = Task(hook, width, _recipe(epochs), choice)
    plan = Plan(task, load_config(config), strengths or STRENGTHS[choice], tuple(range(seeds)), objective)
    folder = _folder(output)
    for variable in THREAD_VARIABLES:  # of the processes: one thread each, whatever started this one
        os.environ.setdefault(variable, "1")
    with Store(folder / "results.db") as store, cluster.workers(jobs, scheduler) as workers:
        return _front(plan, folder, store, workers, as_json)


def _folder(output: str) -> Path:
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{output}: no folder can be made there ({exc.strerror}); give another --output") from None
    return folder


def _front(plan: Plan, folder: Path, store: Store, workers: Executor | None, as_json: bool) -> int:
    """Train, write and print the front; returns the status."""
    from ..apps.odimo.front import explore, kinds

    count = len(plan.seeds) * (1 + 2 * len(kinds(plan)))
    with report.progress("training", count) as advance:
        front = explore(plan, folder, store, workers, lambda what: advance(what=what))
    written = [str(path) for path in write_front(front, folder)]
    if as_json:
        report.emit_json(front.to_json() | {"files": written})
    else:
        _print(front, written)
    return int(not front.equal)


def _recipe(epochs: str) -> Recipe:
    numbers = [part.strip() for part in epochs.split(",")]
    if len(numbers) != 3 or not all(part.isdigit() for part in numbers):
        raise click.UsageError(f"--epochs {epochs}: give three whole numbers, of warm-up, search and final training")
    return Recipe(*map(int, numbers))


def _print(front: Front, written: list[str]) -> None:
    """A line per point, means over the seeds, and where the files are."""
    with_energy = front.plan.task.choice == UNIT  # types are computed on one unit, whose energy follows the cycles
    whole, names = front.means[0].cycles, ALTERNATIVES[front.plan.task.choice].names
    rows = []
    for one in front.means:
        points = [point for point in front.points if point.name == one.name]
        row: list[object] = [one.name, one.accuracy, one.lowest, one.highest, one.cycles, 100 * one.cycles / whole]
        row += [100 * one.share, one.on_front]
        row += [f"{sum(p.equal for p in points):,} of {sum(p.images for p in points):,}"]
        rows.append([*row, one.energy / front.means[0].energy] if with_energy else row)
    columns = [column.format(first=front.means[0].name, second=names[1]) for column in COLUMNS]
    report.table([*columns, "energy, model"] if with_energy else columns, rows)
    report.say(
        "means over the seeds, of integers on the device; equal: the device's scores are those of torch's integers"
    )
    if with_energy:
        report.say("energy relative to the first line, by a model of power, not measured")
    report.say_contract(Graph.contract)  # the default, which its networks have
    report.say(f"{report.counted(len(front.points), 'program')} beside {', '.join(written)}")


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
        from matplotlib import figure as figures
    except ImportError as exc:
        raise UnsupportedError(f"pictures need matplotlib ({exc}); pip install 'tilewright[plots]'") from None

    from ..apps.odimo.jobs import SEARCH

    figure = figures.Figure(figsize=(7, 4.5), layout="constrained")
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
    report.save_figure(figure, path)
    return path
