"""`tilewright plan`: addresses for a network's activations, as a table and a picture."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..compiler import memory
from ..compiler.frontend import import_model
from ..compiler.frontend.source import read_source
from . import report
from .options import json_option, shape_option
from .programs import check_output

if TYPE_CHECKING:
    from ..compiler.memory import Plan


@click.command()
@click.argument("model")
@click.option("--in-place", is_flag=True, help="Let element-wise operators write where they read.")
@click.option("--capacity", type=click.IntRange(min=1), metavar="BYTES", help="Fail if the plan needs more.")
@click.option("-o", "--output", metavar="X.svg|X.png", help="A picture: lifetimes against addresses.")
@shape_option
@json_option
def command(
    model: str,
    in_place: bool,
    capacity: int | None,
    output: str | None,
    shapes: dict[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Plan the memory of MODEL's activations, a quantised network, as plain arrays without padding.

    Steps are the network's operators. The plan is greedy by size; if it needs more than the lower bound, which is the
    most bytes alive in one step, the best plan that CP-SAT finds replaces it.
    """
    if output:
        check_output(output, tuple(f".{kind}" for kind in memory.FORMATS), {"MODEL": model})
    with report.progress(f"reading {model}") as advance:
        graph = import_model(read_source(model, shapes=shapes))
        advance(what="planning")
        start = time.perf_counter()
        found = memory.plan(memory.graph_buffers(graph, in_place=in_place), capacity)
        seconds = time.perf_counter() - start
    if output:
        memory.draw(found, output, f"{graph.name}: {found.nbytes:,} bytes")
    if as_json:
        rows = [dict(zip(_COLUMNS, row)) for row in _rows(found)]
        sizes = {"bytes": found.nbytes, "bound": found.bound, "greedy": found.greedy, "method": found.method}
        report.emit_json({"network": graph.name, **sizes, "seconds": seconds, "buffers": rows})
        return
    report.table(_COLUMNS, _rows(found))
    total = sum(b.nbytes for b in found.buffers)
    report.say(f"{graph.name}: {len(found.buffers)} buffers, {total:,} bytes in sum, in an arena of {found.nbytes:,}")
    above = 100 * (found.greedy / found.bound - 1)
    report.say(
        f"lower bound {found.bound:,}, greedy {found.greedy:,} ({above:+.1f} %), plan {found.nbytes:,} "
        f"({found.method}), {seconds:.3f} s"
    )


_COLUMNS = ["buffer", "bytes", "first", "last", "address", "end"]


def _rows(found: Plan) -> list[list]:
    """One row per buffer, by address."""
    order = sorted(found.buffers, key=lambda b: (found.addresses[b.name], b.first))
    rows = [(b, found.addresses[b.name]) for b in order]
    return [[b.name, b.nbytes, b.first, b.last, address, address + b.nbytes] for b, address in rows]
