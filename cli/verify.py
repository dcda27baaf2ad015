"""`tilewright verify`: proves a program free of deadlocks and races."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..hw.errors import ProgramError, RaceError
from . import report
from .options import json_option

if TYPE_CHECKING:
    from ..runtime.executable import Executable
    from ..runtime.verify import Report


def verify_executable(executable: Executable, explain: bool = False) -> dict[str, Report]:
    """A report per launch, whose use of memory is proved, too. Raises the errors of `verify`, with the step in front.

    A certificate that a launch has is checked, and each launch has one then. With `explain` a race is drawn on
    standard error before.
    """
    from ..runtime.executable import LaunchStep
    from ..runtime.proof.certificate import check
    from ..runtime.proof.order import drawn
    from ..runtime.verify import verify

    found = {}
    for step in executable.steps:
        if isinstance(step, LaunchStep):
            try:
                if step.certificate is not None:
                    check(step.launch, step.certificate)
                found[step.name] = verify(step.launch, memory=True)
                step.certificate = found[step.name].certificate
            except ProgramError as exc:
                text = f"step {step.name!r}: {exc}".replace(f": launch {step.name!r}", "", 1)  # which is called so, too
                if explain and isinstance(exc, RaceError) and exc.pair is not None:
                    report.say(drawn(step.launch, exc.pair), err=True)
                raise type(exc)(text) from None
    return found


@click.command()
@click.argument("program", metavar="X.tw", required=False)
@click.option("--explain", is_flag=True, help="Draw a race: both instructions, the tokens around, the missing one.")
@click.option("--mutate", metavar="N", type=click.IntRange(1), help="Try the proof on N mutants of programs instead.")
@click.option("--seed", type=click.IntRange(0), help="Which mutants; 0 if absent.")
@click.option("--key", metavar="KEY.pub", help="Refuse X.tw unless X.tw.sig is its signature by this SSH key.")
@json_option
def command(
    program: str | None, explain: bool, mutate: int | None, seed: int | None, key: str | None, as_json: bool
) -> int:
    """Prove every launch of the program X.tw free of deadlocks and races, in every legal execution.

    Also that it reads no scratchpad entry and no temporary before it writes it, and writes its outputs whole. A race or
    deadlock is an error that names both instructions, the memory range and the token that is missing.

    With --mutate, make N mutants of the launches of X.tw, or of programs of the compiler and random ones; compare what
    the proof says with what runs show. The exit status is 1 where a wrong one is accepted or a correct one refused.
    """
    if program is None and key is not None:
        raise click.UsageError("--key is of X.tw; give both")
    if mutate is not None:
        from . import mutants

        return mutants.command(mutate, seed or 0, _load(program, key) if program else None, as_json)
    if program is None:
        raise click.UsageError("Missing argument 'X.tw'; or give --mutate N.")
    if seed is not None:
        raise click.UsageError("--seed is of --mutate N; give both")
    return _verify(program, _load(program, key), key, explain, as_json)


def _load(program: str, key: str | None) -> Executable:
    """The program; with `key` one whose signature by it was checked, of the bytes that are read."""
    from ..hw.foreign import read_regular
    from ..runtime.executable import Executable
    from ..runtime.proof.signature import check_signature

    if key is None:
        return Executable.load(program)
    data = read_regular(program, "a .tw file")
    check_signature(data, program, key)
    return Executable.from_bytes(data, program)


def _verify(program: str, executable: Executable, key: str | None, explain: bool, as_json: bool) -> int:
    carried = sum(step.certificate is not None for step in executable.launches)
    start = time.process_time()
    with report.progress(f"verifying {program}"):
        found = verify_executable(executable, explain)
    seconds = time.process_time() - start
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
        facts = {"program": program, "config": executable.cfg.name, "contract": executable.contract}
        facts |= {"certificates": carried, "cpu_seconds": seconds}
        report.emit_json(facts | ({"signed_by": key} if key else {}) | {"launches": rows})
        return 0
    if rows:
        report.table([key.replace("_", " ") for key in rows[0]], [list(row.values()) for row in rows])
    report.say_contract(executable.contract)
    proved = "no deadlock, no race, nothing read before it is written"
    held = f"{report.counted(carried, 'certificate')} checked" if carried else "without a certificate"
    held += f"; signed by the key of {key}" if key else ""
    count = report.counted(sum(r.instructions for r in found.values()), "instruction")
    report.say(f"{program}: {report.counted(len(rows), 'launch', 'launches')}, {proved}; {held}")
    report.say(f"{count} in {seconds:.2f} s of CPU time")
    return 0
