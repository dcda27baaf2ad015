"""Output of the verbs: tables, JSON, and progress that only a terminal shows.

rich honours NO_COLOR and writes plain text where the output is not a terminal.
"""

from __future__ import annotations

import json
import shutil
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
_GAP = 3  # columns between two of a table, where there is room
_SHORTEST = 14  # columns that a shortened name keeps
_WORDS = 3  # of a name, as in "conv_1 to conv_7"; a text of more is a sentence


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
    """Print `rows` under `columns`; a column whose cells are all numbers is aligned right. `total` is a last row.

    A terminal that is too narrow never breaks a number: headings take several lines, long names are shortened, and
    last the widest columns of numbers are left out, which a line below the table says.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    lines = [[_text(cell) for cell in row] for row in [*rows, *([total] if total else [])]]
    numeric = [all(_numeric(line[k]) for line in lines) for k in range(len(columns))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    widths, gap = _fit(columns, lines, numeric, room - 2) if room else ([PLAIN_WIDTH] * len(columns), _GAP)
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=False, padding=(0, gap // 2))
    for name, width, right in zip(columns, widths, numeric, strict=True):
        if width:
            out.add_column(name, justify="right" if right else "left", overflow="fold", max_width=width)
    for k, line in enumerate(lines):
        if total and k == len(lines) - 1:
            out.add_section()
        cells = [(_shortened(cell, width) if room else cell, width) for cell, width in zip(line, widths, strict=True)]
        out.add_row(*(cell for cell, width in cells if width))
    console = Console(width=room or PLAIN_WIDTH, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(out)
    click.echo("\n".join(line.rstrip() for line in capture.get().strip("\n").splitlines() if line.strip()))
    if missing := [name for name, width in zip(columns, widths, strict=True) if not width]:
        click.echo(f"no room for {', '.join(missing)} in {room} columns: widen the terminal, or write to a file")


def _fit(
    columns: Sequence[str], lines: Sequence[Sequence[str]], numeric: Sequence[bool], room: int
) -> tuple[list[int], int]:
    """The width of each column, 0: left out, where a terminal has `room` columns; and the gap between two columns."""
    cells = [max((len(line[k]) for line in lines), default=0) for k in range(len(columns))]
    one_line = [max(width, len(name)) for width, name in zip(cells, columns, strict=True)]
    if sum(one_line) + _GAP * (len(columns) - 1) <= room:
        return one_line, _GAP
    words = [max((len(word) for word in name.split()), default=0) for name in columns]
    widths = [max(pair) for pair in zip(cells, words, strict=True)]

    def excess(gap: int) -> int:
        return sum(widths) + gap * (sum(map(bool, widths)) - 1) - room

    if excess(_GAP) <= 0:
        return widths, _GAP
    while excess(1) > 0:
        texts = [k for k, width in enumerate(widths) if not numeric[k] and width > max(_SHORTEST, words[k])]
        numbers = [k for k, width in enumerate(widths) if numeric[k] and width]
        if texts:
            widths[max(texts, key=widths.__getitem__)] -= 1
        elif numbers:
            widths[max(numbers, key=widths.__getitem__)] = 0
        else:
            break
    return widths, 1


def _shortened(cell: str, width: int) -> str:
    """`cell` if it fits or is a sentence, which wraps; else its beginning and an ellipsis."""
    return cell if len(cell) <= width or len(cell.split()) > _WORDS else cell[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"


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
