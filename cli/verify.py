"""`tilewright verify`: proves a program free of deadlocks and races."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..hw.errors import ProgramError
from . import report
from .options import json_option

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from ..runtime.verify import Report


def verify_executable(executable: Executable) -> dict[str, Report]:
    """A report per launch. Raises the errors of `verify`, with the step's name in front."""
    from ..runtime.executable import LaunchStep
    from ..runtime.verify import verify

    found = {}
    for step in executable.steps:
        if isinstance(step, LaunchStep):
            try:
                found[step.name] = verify(step.launch)
            except ProgramError as exc:
                raise type(exc)(f"step {step.name!r}: {exc}") from None
    return found


@click.command()
@click.argument("program", metavar="X.tw", required=False)
@click.option("--mutate", metavar="N", type=click.IntRange(1), help="Try the proof on N mutants of programs instead.")
@click.option("--seed", type=click.IntRange(0), help="Which mutants; 0 if absent.")
@json_option
def command(program: str | None, mutate: int | None, seed: int | None, as_json: bool) -> int:
    """Prove every launch of the program X.tw free of deadlocks and races, in every legal execution.

    A race or deadlock is an error that names both instructions and the memory range.

    With --mutate, make N mutants of the launches of X.tw, or of programs of the compiler and random ones; compare what
    the proof says with what runs show. The exit status is 1 where a wrong one is accepted or a correct one refused.
    """
    from ..runtime.executable import Executable

    if mutate is not None:
        from .trust import mutants

        return mutants.command(mutate, seed or 0, Executable.load(program) if program else None, as_json)
    if program is None:
        raise click.UsageError("Missing argument 'X.tw'; or give --mutate N.")
    if seed is not None:
        raise click.UsageError("--seed is of --mutate N; give both")
    return _verify(program, Executable.load(program), as_json)


def _verify(program: str, executable: Executable, as_json: bool) -> int:
    with report.progress(f"verifying {program}"):
        found = verify_executable(executable)
    rows = [
        {
            "step": name,
            "instructions": r.instructions,
            "token_pairs": len(r.pairs),
            "implied": r.implied,
            "most_in_flight": max(r.in_flight.values(), default=0),
        }
        for name, r in found.items()
    ]
    if as_json:
        report.emit_json({"program": program, "config": executable.cfg.name, "launches": rows})
        return 0
    if rows:
        report.table([key.replace("_", " ") for key in rows[0]], [list(row.values()) for row in rows])
    click.echo(f"{program}: {report.counted(len(rows), 'launch', 'launches')}, no deadlock, no race")
    return 0
