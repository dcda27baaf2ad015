"""`tilewright verify`: proves a program free of deadlocks and races, and the mutation study of this proof."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

import click

from ..compiler import graph as g
from ..compiler.conv_shape import ConvShape
from ..hw.config import PRESETS, Config
from ..hw.errors import InputError, ProgramError, RaceError
from ..hw.foreign import read_regular
from ..runtime.executable import Executable, LaunchStep
from ..runtime.launch import Launch
from ..runtime.proof.certificate import check
from ..runtime.proof.order import drawn
from ..runtime.proof.signature import check_signature
from ..runtime.verify import Report, verify, verify_steady
from ..sim.random_programs import ROWS, WIDE
from . import report
from .options import json_option

if TYPE_CHECKING:
    from ..sim.mutation import Study


def verify_executable(executable: Executable, explain: bool = False) -> dict[str, Report]:
    """A report per launch, whose use of memory is proved, too. Raises the errors of `verify`, with the step in front.

    A steady launch has a report of its own, and raises the errors of `verify_steady`. A certificate that a launch has
    is checked, and each launch has one then. With `explain` a race is drawn on standard error before.
    """
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
    names = {step.name: step for step in executable.launches}
    for name, proved in verify_steady(executable.steps).items():
        found[f"{name}, steady"], names[name].steady_certificate = proved, proved.certificate
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
        return _mutate(mutate, seed or 0, _load(program, key) if program else None, as_json)
    if program is None:
        raise click.UsageError("Missing argument 'X.tw'; or give --mutate N.")
    if seed is not None:
        raise click.UsageError("--seed is of --mutate N; give both")
    return _verify(program, _load(program, key), key, explain, as_json)


def _load(program: str, key: str | None) -> Executable:
    """The program; with `key` one whose signature by it was checked, of the bytes that are read."""
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


_NETWORKS = 2  # small networks on each configuration


def _mutate(count: int, seed: int, executable: Executable | None, as_json: bool) -> int:
    """Judge `count` mutants of the launches of `executable`, or of the compiler's and random ones; the exit status."""
    from ..sim.mutation import random_launches, study

    with report.progress(f"judging {count} mutants"):
        if executable is None:
            source = alternating(cycle(compiled(seed)), random_launches(seed))
        else:
            launches = [(step.name, step.launch) for step in executable.launches]
            if not launches:
                raise InputError("--mutate: the program has no launch, only steps of the host; give another")
            source = cycle(launches)
        found = study(source, count, seed)
    if as_json:
        facts = {"seed": seed, "programs": found.programs, "refused": found.refused, "named": found.named}
        facts |= {"defined": found.defined, "exhausted": found.exhausted, "orders": found.orders}
        facts |= {"passed": found.passed, "classes": found.table()}
        facts |= {verdict: found.count(verdict) for verdict in _UNDECIDED}
        report.emit_json(facts)
    else:
        show(found, count, seed)
    return int(not found.passed)


_UNDECIDED = ("harmless", "unproved")


def show(found: Study, count: int, seed: int) -> None:
    """The table by class, and what should not be."""
    report.records(found.table())
    report.say(
        f"seed {seed}: {count} mutants of {report.counted(found.programs, 'program')}, {len(found.refused)} of these "
        f"refused; {found.count('missed')} wrong mutants accepted, {found.count('alarms')} correct ones refused"
    )
    report.say(
        f"neither wrong nor correct: {found.count('harmless')} refused for what nothing sees in the end, "
        f"{found.count('unproved')} because data decide what they do; {found.defined} mutants also ran as defined, "
        f"{found.differ} of them with another end"
    )
    report.say(f"{found.exhausted} mutants ran in every order of their queues, {found.orders:,} orders in all")
    for line in (*found.refused, *found.named):
        report.say(line)


def alternating(*sources: Iterator[tuple[str, Launch]]) -> Iterator[tuple[str, Launch]]:
    """One of each source after the other."""
    for launches in zip(*sources):
        yield from launches


def compiled(seed: int) -> list[tuple[str, Launch]]:
    """Launches of small networks, and of layers with tables, reductions, several taps, and two units."""
    from ..apps.explore.trial import on_accelerator, small_network

    found: list[tuple[str, Launch]] = []
    for cfg in (PRESETS["tiny"], PRESETS["tiny_two"], ROWS, WIDE):
        for k in range(_NETWORKS):
            number = _NETWORKS * seed + k
            for step in on_accelerator(small_network(number, cfg.wgt_bits), cfg).launches:
                found.append((f"network {number} on {cfg.name}", step.launch))
    return [*found, *_divided(PRESETS["tiny_two"]), *_rows(ROWS)]


def _divided(cfg: Config) -> list[tuple[str, Launch]]:
    """Layers on two units: a convolution and a dense layer."""
    from .bench.two_units import Division

    around = (1, 1, 1, 1)
    shapes = (ConvShape(1, 8, 3, 3, 16, (3, 3), (1, 1), around), ConvShape(1, 16, 1, 1, 16))
    layers = [Division(shape, 8) for shape in shapes]
    return [(f"{layer.name} on {cfg.name}", layer.launch(cfg)) for layer in layers]


def _rows(cfg: Config) -> list[tuple[str, Launch]]:
    """Softmax: sums over the lanes of an entry, and tables."""
    from ..apps.explore.trial import on_accelerator

    large = cfg.replace(name=f"large_{cfg.name}", tables=4, acc_bytes=1 << 13, inp_bytes=1 << 12, wgt_bytes=1 << 13)
    x = g.Tensor("x", (1, 16, 2, 2), scale=0.1)
    y = g.Tensor("y", x.shape, scale=1 / 256, zero_point=-128)
    graph = g.Graph("softmax", (x,), (y,), (g.Softmax("softmax", (x,), y, 1, 1.0),))
    return [(f"softmax on {large.name}", step.launch) for step in on_accelerator(graph, large).launches]
