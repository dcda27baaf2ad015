"""`tilewright assign`: the module that runs each operator of a network, its time, and the runner-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..compiler import cost
from ..compiler.cost import on_memory
from ..compiler.graph import Divisible, Graph
from ..compiler.graph.ranges import headroom
from ..compiler.graph.regroup import capable
from ..compiler.target.host import HostModel
from ..hw.config import Config, load_config
from ..hw.errors import UnsupportedError
from ..runtime.executable import HostStep, LaunchStep
from ..sim.dram import Dram, load_dram
from ..sim.profile import profile
from ..sim.timing import check_memory, predict
from . import report
from .breaks import BREAK_COLUMNS, breaks
from .layers import share_on_device
from .options import (
    Choices,
    choice_options,
    config_option,
    input_type_option,
    json_option,
    mapping_option,
    memory_option,
    shape_option,
    target_option,
)
from .programs import check_output, read_graph, read_target
from .remedy import remedy, say_remedy

if TYPE_CHECKING:
    from ..compiler.mapping import ChannelMapping
    from ..compiler.network import Compiled
    from ..compiler.target.assign import Choice

COLUMNS = ["operator", "kind", "MACs", "headroom", "module", "us", "alone us", "runner-up", "runner-up us"]
COLUMNS += ["why others refuse"]
PASS_COLUMNS = ["module", "pass", "what it does"]
# keys of `unit_rows` -> the column's name
UNIT_COLUMNS = {
    "layer": "layer",
    "channels": "channels",
    "capable": "may be ternary",
    "ternary": "ternary",
    "gemm_cycles": "gemm cycles",
    "ternary_cycles": "ternary cycles",
    "cycles": "cycles",
    "bound": "bound by",
    "gemm_alone": "all on gemm",
    "ternary_alone": "all on ternary",
    "cheapest": "best ternary",
    "cheapest_cycles": "best cycles",
}


@click.command()
@click.argument("model", required=False)
@click.option("--passes", is_flag=True, help="List what rewrites a network for each module before it is assigned.")
@config_option()
@choice_options(mapping_option, memory_option, target_option, input_type_option, shape_option)
@click.option("--min-cost", metavar="FILE", help="Write the mapping with the least predicted time, and use it.")
@json_option
def command(
    model: str | None,
    passes: bool,
    config: str,
    choices: Choices,
    min_cost: str | None,
    as_json: bool,
) -> None:
    """Show which module of the target runs each operator of MODEL, a quantised network or FILE.py:NAME, a graph.

    Every operator goes to the module with the lowest predicted time, transfers to and from its neighbours included,
    `alone us`; the runner-up is the second. The host is a modelled Cortex-A9 at 650 MHz, the accelerator runs at 100
    MHz; cycles of its launches are simulated by the timing model. Column `us` is what an operator takes of these two:
    it adds up to their sum. Steps of the host that only bring tensors to the accelerator or back have their own rows.

    Column `headroom` is how many of the 32 bits no accumulator of the operator needs, whatever the inputs; a network
    whose accumulators could overflow is refused.

    Where the accelerator has two compute units, a second table has for each layer that both can share the predicted
    cycles of each unit and of the layer, the unit that bounds it, and the cycles with all channels on one unit.

    With --passes the rewrites of the graph that come before, in their order, are listed instead: those of the modules
    of the configuration, without MODEL.
    """
    if passes == (model is not None):
        raise click.UsageError(
            "--passes is of a configuration, without MODEL" if passes else "Missing argument 'MODEL'."
        )
    if model is None:
        _list_passes(config, as_json)
        return
    from ..compiler.mapping import regroup
    from ..compiler.network import compile_for

    cfg = load_config(config)
    given, memory = None if choices.dram is None else load_dram(choices.dram), load_dram(choices.dram)
    check_memory(cfg, memory)
    if min_cost is not None:
        _check_min_cost(choices.mapping, min_cost, model)
    with report.progress(f"compiling {model} for {cfg.name}"), on_memory(given, cfg):
        graph, chosen = read_graph(model, cfg, choices), read_target(choices.target, cfg, given)
        split = _mapping(graph, cfg, choices.mapping, min_cost, given)
        compiled = compile_for(graph if split is None else regroup(graph, split, cfg), cfg, target=chosen, dram=given)
        kernels = compiled.of_kernels(cfg)
        shared = unit_rows(graph, cfg, split)
        totals, spent = {"layers": shared, **_totals(compiled, memory)}, _spent(compiled, memory)
        rows = [choice_row(c, sum(spent.pop(op.name, 0.0) for op in c.ops)) for c in compiled.assignment.choices]
        kinds = {step.name: step.op for step in compiled.executable.steps if isinstance(step, HostStep)}
        rows += [[name, kinds[name], 0, "", "host", us, "", "", "", ""] for name, us in spent.items()]
    advice, apart = remedy(model, compiled.executable), breaks(compiled)
    if as_json:
        facts = {"config": cfg.name, "contract": graph.contract, "kernels": [*kernels], **totals}
        facts |= {"breaks": apart, "remedy": advice}
        report.emit_json(facts | {"operators": [dict(zip(COLUMNS, row)) for row in rows]})
        return
    report.table(COLUMNS, rows)
    report.say_contract(graph.contract)
    if shared:
        report.table([*UNIT_COLUMNS.values()], [["" if v is None else v for v in row.values()] for row in shared])
    if apart:
        report.table(BREAK_COLUMNS, [[*row.values()] for row in apart])
    for arena in totals["arenas"]:
        report.say(f"arena of {arena['launch']}: {arena['bytes']:,} bytes, lower bound {arena['bound']:,}")
    for line in kernels:
        report.say(line)
    report.say(
        f"accelerator {totals['cycles']:,} cycles, simulated: {totals['accelerator_us']:,.0f} us if it closes at 100 "
        f"MHz; host {totals['host_us']:,.0f} us, modelled ({100 * totals['host_share']:.0f} % of the sum); "
        f"host alone {totals['host_alone_us']:,.0f} us, modelled"
    )
    say_remedy(advice)


def _list_passes(config: str, as_json: bool) -> None:
    from ..compiler.network import default_target

    cfg = load_config(config)
    rows = [(module.name, *found) for module in default_target(cfg).modules for found in module.passes()]
    if as_json:
        report.emit_json({"config": cfg.name, "passes": [dict(zip(PASS_COLUMNS, row)) for row in rows]})
        return
    report.table(PASS_COLUMNS, rows)


def _check_min_cost(mapping: str | None, path: str, model: str) -> None:
    if mapping is not None:
        raise UnsupportedError(f"--min-cost {path}: chooses a mapping, and --mapping {mapping} gives one; drop one")
    check_output(path, (".json",), {"MODEL": model})


def _mapping(
    graph: Graph, cfg: Config, path: str | None, min_cost: str | None, dram: Dram | None
) -> ChannelMapping | None:
    """The mapping of a file, or the one with the least predicted time, which is written; None without either."""
    from ..compiler.mapping import read_mapping, write_mapping
    from ..compiler.network import min_cost as choose

    if min_cost is None:
        return None if path is None else read_mapping(path)
    found = choose(graph, cfg, dram=dram)
    write_mapping(found, min_cost)
    return found


def _spent(compiled: Compiled, dram: Dram) -> dict[str, float]:
    """Microseconds of each operator and of each other step of the host. They add up to the program's time.

    Cycles of a launch before its first instruction and after its last belong to its first operator.
    """
    spent: dict[str, float] = {}
    for step in compiled.executable.steps:
        if isinstance(step, LaunchStep):
            timing = predict(step.launch, dram=dram)
            shares = profile(step.launch, timing.timeline(), timing.cycles)
            first = next(share.path[0] for share in shares if share.path)
            for share in shares:
                name = share.path[0] if share.path else first
                spent[name] = spent.get(name, 0.0) + 1e6 * share.cycles / cost.CLOCK
    for step, seconds in compiled.host_steps(HostModel()):
        if seconds:
            spent[step.name] = spent.get(step.name, 0.0) + 1e6 * seconds
    return spent


def choice_row(choice: Choice, us: float) -> list:
    """The cells of `COLUMNS` for operators that run together and take `us` microseconds."""
    seconds, second = choice.seconds, choice.runner_up
    spare = [bits for bits in map(headroom, choice.ops) if bits is not None]
    return [
        " + ".join(op.name for op in choice.ops),
        " + ".join(type(op).__name__ for op in choice.ops),
        sum(op.macs for op in choice.ops),
        min(spare) if spare else "",
        choice.module.name,
        us,
        1e6 * seconds[choice.module.name],
        second or "",
        "" if second is None else 1e6 * seconds[second],
        "; ".join(f"{name}: {why}" for name, why in choice.refusals.items()),
    ]


def _totals(compiled: Compiled, dram: Dram) -> dict:
    """Simulated cycles of the launches, modelled time of the host, and modelled time of a host without accelerator."""
    from ..compiler.network import launch_cycles

    assignment, host = compiled.assignment, HostModel()
    cycles = launch_cycles(compiled.executable, dram)
    total = {
        "arenas": [{key: one[key] for key in ("launch", "bytes", "bound")} for one in arenas(compiled)],
        "launches": len(compiled.executable.launches),
        "device_macs_share": share_on_device(compiled.executable),
        "cycles": cycles,
        "accelerator_us": 1e6 * cycles / cost.CLOCK,
        "host_us": 1e6 * compiled.host_seconds(host),
    }
    total["host_share"] = total["host_us"] / (total["host_us"] + total["accelerator_us"])
    return total | {"host_alone_us": 1e6 * sum(host.seconds(op) for op in assignment.graph.ops)}


def arenas(compiled: Compiled | None) -> list[dict[str, Any]]:
    """The plan of each launch's activations; none for programs whose network is not known."""
    from ..compiler.accelerator.launch import arena_plan
    from ..compiler.accelerator.module import Accelerator

    if compiled is None:
        return []
    assignment, found = compiled.assignment, []
    for module, ops in assignment.parts():
        if isinstance(module, Accelerator):
            plan = arena_plan(assignment.graph, ops, compiled.executable.cfg)
            made_by = {op.output.name: op.name for op in ops}
            buffers = [
                {
                    "name": b.name,
                    "operator": made_by.get(b.name, b.name),
                    "bytes": b.nbytes,
                    "first": b.first,
                    "last": b.last,
                    "address": plan.addresses[b.name],
                }
                for b in plan.buffers
            ]
            sizes = {"bytes": plan.nbytes, "bound": plan.bound, "method": plan.method}
            found.append({"launch": f"{ops[0].name} to {ops[-1].name}", **sizes, "buffers": buffers})
    return found


def unit_rows(graph: Graph, cfg: Config, mapping: ChannelMapping | None = None) -> list[dict[str, Any]]:
    """A row for each layer that units can share, none where `cfg` has GEMM alone.

    `capable` counts the channels whose weights are ternary, `ternary` those that `mapping` gives to that unit. Cycles
    are predicted for the kernel that both units share: those in which each unit computes, those of the layer, and those
    of the layer with all of its channels on one unit, whatever its weights; None where nothing fits the scratchpads.
    `cheapest` is the number of ternary channels that would be, whatever the weights.
    """
    from ..compiler.mapping import TERNARY, Costs, cheapest, refusal

    if TERNARY not in cfg.units:
        return []
    rows, costs = [], Costs(graph, cfg)
    for op in graph.layers:
        if not isinstance(op, Divisible) or refusal(op):
            continue
        count, split = len(op.weight), {} if mapping is None else mapping.layers.get(op.name, {})
        ternary = len(split.get(TERNARY, ()))
        best = cheapest(op, count, cfg, costs, costs.least)
        found, *others = (costs.split(op, k) for k in (ternary, 0, count, best))
        cycles = [*found.units.values(), found.cycles]
        row = [op.name, count, int(capable(op, graph.contract).sum()), ternary, *map(_whole, cycles), found.bound]
        first, second, last = (_whole(each.cycles) for each in others)
        rows.append(dict(zip(UNIT_COLUMNS, [*row, first, second, best, last])))
    return rows


def _whole(cycles: float) -> int | None:
    return round(cycles) if cycles < float("inf") else None
