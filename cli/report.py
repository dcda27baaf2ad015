"""Output of the verbs: tables, JSON, and progress that only a terminal shows.

rich honours NO_COLOR and writes plain text where the output is not a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from ..hw.errors import printable
from ..runtime.device import Device
from ..runtime.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN_WIDTH = 200  # columns of a table in a file or a pipe


_CONTRACTS = {"double": "two roundings, as TensorFlow Lite Micro", "single": "one rounding, as onnxruntime"}


class Advance(Protocol):
    """Advances the progress display."""

    def __call__(self, steps: int = 1, what: str = "", total: int | None = None) -> None:
        """Advance by `steps`, of `total` where that is known anew; `what`, if not empty, becomes the description."""
        ...


def say(text: str = "", nl: bool = True, err: bool = False) -> None:
    """Print `text`, in which names and texts of files may stand: control characters but newline and tab are escaped."""
    click.echo(printable(text, "\n\t"), nl=nl, err=err)


def emit_json(result: object) -> None:
    """Print `result` as one JSON document."""
    say(json.dumps(result, indent=1))


def say_contract(contract: str | None) -> None:
    """Print the rounding contract of a network; nothing of a program that was not a network."""
    if contract is not None:
        say(f"rounding contract: {contract} ({_CONTRACTS[contract]})")


def say_loss(facts: Mapping[str, Any]) -> None:
    """Print what the integers of a language model lose: `perplexity` and `agreement` of `facts`."""
    found, share = facts["perplexity"], facts["agreement"]
    say(
        f"perplexity: {found['integers']:.3f} in integers, {found['float32']:.3f} in float32; "
        f"the same most likely token at {100 * share:.1f} % of the positions"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], total: Sequence[object] | None = None) -> None:
    """Print `rows` under `columns`; a column whose cells are all numbers is aligned right. `total` is a last row."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [[_text(cell) for cell in row] for row in rows]
    last = [[_text(cell) for cell in total]] if total else []
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False)
    for k, name in enumerate(columns):
        numeric = all(_numeric(row[k]) for row in cells + last)
        out.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        out.add_row(*row)
    if last:
        out.add_section()
        out.add_row(*last[0])
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(width=width, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(out)
    click.echo("\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines() if line.strip()))


def records(rows: Sequence[Mapping[str, object]], total: Mapping[str, object] | None = None) -> None:
    """Print `rows`, whose keys are the columns, and `total` as a last row."""
    table(list(rows[0]), [list(row.values()) for row in rows], None if total is None else list(total.values()))


def counted(n: int, one: str, many: str = "") -> str:
    """`n` and the noun, e.g. "1 launch"; `many` is its plural if that is not `one` with an s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.2f}"
    return printable(str(cell))


def _numeric(cell: str) -> bool:
    return cell == "" or cell.replace(",", "").replace(".", "").replace("-", "").removesuffix(" %").isdigit()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure of matplotlib in the format of the suffix, atomically: .svg with the same bytes every time."""
    import matplotlib

    kind = Path(path).suffix[1:]
    with atomic_write(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "tilewright"}):
        figure.savefig(temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def opened(device: Device) -> Device:
    """`device`; says on standard error how long building its simulator took, which is the time of no run."""
    seconds = getattr(device, "build_seconds", None)
    if seconds is not None:
        click.echo(f"building the circuit's simulator, once: {seconds:.0f} s", err=True)
    return device


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """A progress display on standard error while the block runs, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda steps=1, what="", total=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    columns += [BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()] if total else []
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as display:
        task = display.add_task(printable(what), total=total)

        def advance(steps: int = 1, what: str = "", total: int | None = None) -> None:
            if total is not None:
                display.update(task, total=total)
            if what:
                display.update(task, description=printable(what))
            display.advance(task, steps)

        yield advance
