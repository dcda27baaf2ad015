"""`tilewright odimo`: the command line of compiler/odimo/front.py."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...hw.errors import FileError
from .. import report
from ..options import config_option, json_option

if TYPE_CHECKING:
    from ...compiler.odimo.front import Front
    from ...compiler.odimo.task import Recipe

STRENGTHS = (0.05, 0.2, 0.5, 1.5)
COLUMNS = ["point", "accuracy %", "lowest", "highest", "cycles", "of all-8bit %", "energy, model"]
COLUMNS += ["ternary channels %", "on the front", "images equal"]


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
    help="A strength of the cost; may be given several times. [0.05, 0.2, 0.5, 1.5]",
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
    "--objective",
    default="latency",
    type=click.Choice(["latency", "energy"]),
    show_default=True,
    help="What the search trades for accuracy; energy is that of a model of power.",
)
@click.option(
    "--jobs",
    default=2,
    type=click.IntRange(min=0),
    show_default=True,
    metavar="N",
    help="Processes; 0 works in this one.",
)
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
    objective: str,
    jobs: int,
    output: str,
    config: str,
    as_json: bool,
) -> int:
    """Train a network for two compute units, and write its front of accuracy over cycles with a program per point.

    Each output channel of a layer runs on GEMM in int8 or on unit `ternary`; which, is trained together with the
    weights, for several strengths of the cost. Beside them: all channels in int8, all ternary, first and last layer in
    int8 (io-8bit), and the fastest split (min-cost). Cycles are those of the whole launch in the timing model.
    FILE.py has functions model(), a torch module, and data(), ((images, labels), (images, labels)) to train and to
    test. The status is 1 if a device's scores differ from those of torch's integers. A start that was stopped goes on.
    """
    from ...compiler import jobs as engine
    from ...compiler.odimo.front import Plan, explore, kinds
    from ...compiler.odimo.task import Task
    from ...hw.config import load_config
    from .files import write_front

    task = Task(hook, width, _recipe(epochs))
    plan = Plan(task, load_config(config), strengths or STRENGTHS, tuple(range(seeds)), objective)
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FileError(f"{output}: no folder can be made there ({exc.strerror}); give another --output") from None
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # the processes' torch: one thread each, whatever starts it
        os.environ.setdefault(variable, "1")
    count = seeds * (1 + 2 * len(kinds(plan)))
    pool = engine.processes(jobs) if jobs else nullcontext()
    with engine.Store(folder / "results.db") as store, pool as workers, report.progress("training", count) as advance:
        front = explore(plan, folder, store, workers, lambda what: advance(what=what))
    written = [str(path) for path in write_front(front, folder)]
    if as_json:
        report.emit_json(front.to_json() | {"files": written})
    else:
        _print(front, written)
    return int(not front.equal)


def _recipe(epochs: str) -> Recipe:
    from ...compiler.odimo.task import Recipe

    numbers = [part.strip() for part in epochs.split(",")]
    if len(numbers) != 3 or not all(part.isdigit() for part in numbers):
        raise click.UsageError(f"--epochs {epochs}: give three whole numbers, of warm-up, search and final training")
    return Recipe(*map(int, numbers))


def _print(front: Front, written: list[str]) -> None:
    """A line per point, means over the seeds, and where the files are."""
    whole = front.means[0].cycles
    rows = []
    for one in front.means:
        points = [point for point in front.points if point.name == one.name]
        row: list[object] = [one.name, one.accuracy, one.lowest, one.highest, one.cycles, 100 * one.cycles / whole]
        row += [one.energy / front.means[0].energy, 100 * one.ternary_share, one.on_front]
        rows.append([*row, f"{sum(p.equal for p in points):,} of {sum(p.images for p in points):,}"])
    report.table(COLUMNS, rows)
    click.echo(
        "means over the seeds, of integers on the device; energy relative to the first line, by a model of power, "
        "not measured; equal: the device's scores are those of torch's integers"
    )
    click.echo(f"{report.counted(len(front.points), 'program')} beside {', '.join(written)}")
