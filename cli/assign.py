"""`tilewright assign`: the module that runs each operator of a network, its time, and the runner-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from . import report
from .options import config_option, json_option

if TYPE_CHECKING:
    from ..compiler.network import Compiled
    from ..compiler.target.assign import Choice
    from ..hw.config import Config

COLUMNS = ["operator", "kind", "MACs", "module", "us", "runner-up", "runner-up us", "why others refuse"]


@click.command()
@click.argument("model")
@config_option()
@json_option
def command(model: str, config: str, as_json: bool) -> None:
    """Show which module of the target runs each operator of MODEL, a quantised network.

    Every operator goes to the module with the lowest predicted time, transfers to and from its neighbours included;
    the runner-up is the second. The host is a modelled Cortex-A9 at 650 MHz, the accelerator runs at 100 MHz; cycles
    of its launches are simulated by the timing model.
    """
    from ..compiler.frontend import import_model
    from ..compiler.network import compile_for
    from ..hw.config import load_config

    cfg = load_config(config)
    with report.progress(f"compiling {model} for {cfg.name}"):
        compiled = compile_for(import_model(model), cfg)
        rows, totals = [_row(c) for c in compiled.assignment.choices], _totals(compiled, cfg)
    if as_json:
        report.emit_json({"config": cfg.name, "operators": [dict(zip(COLUMNS, row)) for row in rows], **totals})
        return
    report.table(COLUMNS, rows)
    for arena in totals["arenas"]:
        click.echo(f"arena of {arena['launch']}: {arena['bytes']:,} bytes, lower bound {arena['bound']:,}")
    click.echo(
        f"accelerator {totals['cycles']:,} cycles, simulated: {totals['accelerator_us']:,.0f} us at 100 MHz; "
        f"host {totals['host_us']:,.0f} us, modelled ({100 * totals['host_share']:.0f} % of the sum); "
        f"host alone {totals['host_alone_us']:,.0f} us, modelled"
    )


def _row(choice: Choice) -> list:
    seconds, second = choice.seconds, choice.runner_up
    return [
        " + ".join(op.name for op in choice.ops),
        " + ".join(type(op).__name__ for op in choice.ops),
        sum(op.macs for op in choice.ops),
        choice.module.name,
        1e6 * seconds[choice.module.name],
        second or "",
        "" if second is None else 1e6 * seconds[second],
        "; ".join(f"{name}: {why}" for name, why in choice.refusals.items()),
    ]


def _totals(compiled: Compiled, cfg: Config) -> dict:
    """Simulated cycles of the launches, modelled time of the host, and that of a host without accelerator."""
    from ..compiler import cost
    from ..compiler.accelerator.arena import arena_plan
    from ..compiler.accelerator.module import Accelerator
    from ..compiler.target.host import HostModel
    from ..runtime.executable import LaunchStep
    from ..sim.dram import unshared
    from ..sim.timing import predict

    assignment, host, arenas = compiled.assignment, HostModel(), []
    for module, ops in assignment.parts():
        if isinstance(module, Accelerator):
            plan = arena_plan(assignment.graph, ops, cfg)
            arenas.append({"launch": f"{ops[0].name} to {ops[-1].name}", "bytes": plan.nbytes, "bound": plan.bound})
    launches = [step.launch for step in compiled.executable.steps if isinstance(step, LaunchStep)]
    cycles = sum(predict(launch, dram=unshared(launch.cfg)).cycles for launch in launches)
    total = {
        "arenas": arenas,
        "cycles": cycles,
        "accelerator_us": 1e6 * cycles / cost.CLOCK,
        "host_us": 1e6 * compiled.host_seconds(host),
    }
    total["host_share"] = total["host_us"] / (total["host_us"] + total["accelerator_us"])
    return total | {"host_alone_us": 1e6 * sum(host.seconds(op) for op in assignment.graph.ops)}
