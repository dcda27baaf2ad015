"""`tilewright verify --mutate`: the mutation study of the verifier, with programs of the compiler and random ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

from ..hw.errors import InputError
from . import report

if TYPE_CHECKING:
    from ..hw.config import Config
    from ..runtime.executable import Executable
    from ..runtime.launch import Launch
    from ..sim.mutation import Study

_NETWORKS = 2  # small networks on each configuration


def command(count: int, seed: int, executable: Executable | None, as_json: bool) -> int:
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
    from ..hw.config import PRESETS
    from ..sim.random_programs import ROWS, WIDE

    found: list[tuple[str, Launch]] = []
    for cfg in (PRESETS["tiny"], PRESETS["tiny_two"], ROWS, WIDE):
        for k in range(_NETWORKS):
            number = _NETWORKS * seed + k
            for step in on_accelerator(small_network(number, cfg.wgt_bits), cfg).launches:
                found.append((f"network {number} on {cfg.name}", step.launch))
    return [*found, *_divided(PRESETS["tiny_two"]), *_rows(ROWS)]


def _divided(cfg: Config) -> list[tuple[str, Launch]]:
    """Layers on two units: a convolution and a dense layer."""
    from ..compiler.conv_shape import ConvShape
    from .bench.split import Division, launch_of

    around = (1, 1, 1, 1)
    shapes = (ConvShape(1, 8, 3, 3, 16, (3, 3), (1, 1), around), ConvShape(1, 16, 1, 1, 16))
    layers = [Division(shape, 8) for shape in shapes]
    return [(f"{layer.name} on {cfg.name}", launch_of(layer, cfg)) for layer in layers]


def _rows(cfg: Config) -> list[tuple[str, Launch]]:
    """Softmax: sums over the lanes of an entry, and tables."""
    from ..apps.explore.trial import on_accelerator
    from ..compiler import graph as g

    large = cfg.replace(name=f"large_{cfg.name}", tables=4, acc_bytes=1 << 13, inp_bytes=1 << 12, wgt_bytes=1 << 13)
    x = g.Tensor("x", (1, 16, 2, 2), scale=0.1)
    y = g.Tensor("y", x.shape, scale=1 / 256, zero_point=-128)
    graph = g.Graph("softmax", (x,), (y,), (g.Softmax("softmax", (x,), y, 1, 1.0),))
    return [(f"softmax on {large.name}", step.launch) for step in on_accelerator(graph, large).launches]
