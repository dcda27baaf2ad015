"""`tilewright explore`: the command line of apps/explore."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..apps.explore import cluster
from ..apps.explore.evaluate import MODULES
from ..compiler.frontend.source import contract_of
from ..hw.config import load_config
from ..hw.errors import InputError, UnsupportedError
from ..hw.needs import need
from ..runtime.files import atomic_write, check_writable
from ..sim.dram import load_dram
from . import report
from .options import Choices, config_option, json_option, scheduler_option, shape_option
from .programs import compile_source
from .remedy import remedy

if TYPE_CHECKING:
    from ..apps.explore.study import Question, Trial

_COLUMNS = {"latency_us": "us", "cycles": "cycles", "host_us": "host us", "lut": "LUT", "ff": "FF", "bram": "BRAM"}
_COLUMNS |= {"dsp": "DSP", "clock_ns": "clock ns", "energy_uj": "uJ"}


@click.command()
@click.argument("networks", nargs=-1, required=True, metavar="NET...")
@click.option("--space", metavar="FILE.json", help="What may be chosen: lists of values by field.")
@click.option("--trials", default=60, type=click.IntRange(min=1), show_default=True, help="Points to try, in all.")
@click.option("--workers", default=1, type=click.IntRange(min=1), show_default=True, help="Points measured at once.")
@scheduler_option
@click.option(
    "--study",
    default="sqlite:///explore.db",
    show_default=True,
    metavar="URL",
    help="Database of the results: a second run goes on with them.",
)
@click.option("--name", default="", help="The study in the database. [made of networks, space and memory]")
@click.option("--objective", multiple=True, metavar="NAME", help="What is to be small; may be given several times.")
@click.option("--mhz", default=100, type=click.IntRange(min=1), show_default=True, help="The accelerator's clock.")
@click.option("--seed", default=0, type=click.IntRange(min=0), show_default=True, help="Of the search.")
@click.option("--apply", "chosen", type=click.IntRange(min=0), metavar="K", help="Write the configuration of trial K.")
@click.option("-o", "--output", metavar="X.json|X.png|X.svg", multiple=True, help="That file, or a plot of the front.")
@shape_option
@click.option("--dram", default="zynq_hp4", show_default=True, metavar="NAME|FILE", help="The memory behind the ports.")
@config_option(help_text="What the space changes: preset, VTA configuration string, or JSON file.")
@json_option
def command(
    networks: tuple[str, ...],
    space: str | None,
    trials: int,
    workers: int,
    scheduler: str | None,
    study: str,
    name: str,
    objective: tuple[str, ...],
    mhz: int,
    seed: int,
    chosen: int | None,
    output: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]],
    dram: str,
    config: str,
    as_json: bool,
) -> None:
    """Try configurations on the networks NET, and print those that no other beats.

    A point costs a compilation and a run of the timing model per network, whose cycles are simulated; the host's time
    is that of a modelled Cortex-A9; block RAMs and DSPs are those that synthesis makes of these sizes, LUTs and
    flip-flops are a fit, and the energy is a model. A point that cannot be built, does not fit the xc7z020 or cannot
    run a network is pruned with its reason. Without --space smaller blocks, buffers and queues than those of --config
    are tried, and two load ports.
    """
    need("explore", "explore", "optuna")
    cluster.begin(workers, scheduler, MODULES)
    from ..apps.explore.study import DEFAULT, Explorer, Question, default_space, front, read_space

    config_file, plots = _outputs(output, chosen)
    base, memory = load_config(config), load_dram(dram)
    options = default_space(base, memory) if space is None else read_space(space, base, memory)
    question = Question(networks, options, _objectives(objective) or DEFAULT, mhz, shapes)
    question.check()
    with report.progress(f"{trials} points", trials) as advance, cluster.workers(workers, scheduler) as pool:
        explorer = Explorer(question, study, name or question.name(), seed, pool, workers, lambda _: advance())
        found = explorer.explore(trials)
    best = front(found, question.objectives)
    if config_file is not None and chosen is not None:
        _apply(question, found, chosen, config_file)
    for plot in plots:
        _plot(plot, found, best, question)
    advice = _advice(question, best)
    if as_json:
        report.emit_json(_document(question, found, best) | {"remedies": advice})
        return
    _print(question, found, best)
    for text in advice.values():
        report.say(text)
    if config_file is not None:
        report.say(f"{config_file}: the configuration of trial {chosen}")


def _objectives(names: tuple[str, ...]) -> tuple[str, ...]:
    from ..apps.explore.study import OBJECTIVES

    for name in names:
        if name not in OBJECTIVES:
            raise InputError(f"--objective {name}: must be one of {', '.join(OBJECTIVES)}")
    return tuple(dict.fromkeys(names))


def _outputs(outputs: tuple[str, ...], chosen: int | None) -> tuple[str | None, list[str]]:
    """The configuration's file and the plots' files. Raises `UnsupportedError` for other endings."""
    configs = [path for path in outputs if path.endswith(".json")]
    plots = [path for path in outputs if path.endswith((".png", ".svg"))]
    for path in outputs:
        if path not in configs + plots:
            raise UnsupportedError(f"-o {path}: must end in .json, .png or .svg")
        check_writable(path)
    if len(configs) != (chosen is not None):
        raise InputError("--apply K and -o FILE.json belong together; give both, or neither")
    return (configs[0] if configs else None), plots


def _apply(question: Question, trials: list[Trial], chosen: int, path: str) -> None:
    trial = next((one for one in trials if one.number == chosen), None)
    if trial is None or trial.reason:
        why = f"is infeasible: {trial.reason}" if trial else f"is none of the study's, 0 to {len(trials) - 1}"
        raise InputError(f"--apply {chosen}: trial {chosen} {why}")
    config = question.space.point(trial.values).config.replace(name=Path(path).stem)
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(config.to_dict(), indent=1) + "\n")


def _advice(question: Question, best: list[Trial]) -> dict[str, str]:
    """The remedies of the networks that need one on the first configuration of the front, by their file."""
    if not best:
        return {}
    cfg, choices = question.space.point(best[0].values).config, Choices(shapes=question.shapes)
    found = {network: remedy(network, compile_source(network, cfg, choices)) for network in question.networks}
    return {network: text for network, text in found.items() if text is not None}


def _contracts(question: Question) -> dict[str, str]:
    """The rounding contract of each network."""
    return {network: contract_of(network) for network in question.networks}


def _shown(question: Question) -> list[str]:
    """Figures of a row: the objectives, and what explains them."""
    return list(dict.fromkeys([*question.objectives, "cycles", "host_us", "lut", "bram", "dsp"]))


def _print(question: Question, trials: list[Trial], best: list[Trial]) -> None:
    names, choices = _shown(question), list(question.space.choices)
    base = question.space.first()
    rows = []
    for trial in best:
        changed = ", ".join(f"{key} {trial.values[key]}" for key in choices if trial.values[key] != base[key])
        figures = [trial.found[key] for key in names]
        rows.append([trial.number, *figures, changed or f"as {question.space.base.name}"])
    report.table(["trial", *(_COLUMNS[key] for key in names), "chosen"], rows)
    for contract in sorted(set(_contracts(question).values())):
        report.say_contract(contract)
    pruned = [trial for trial in trials if trial.reason]
    known = sum(not trial.new for trial in trials)
    report.say(
        f"{report.counted(len(trials), 'trial')} of {report.counted(question.space.size, 'combination')}, "
        f"{len(pruned)} pruned, {known} known before; {len(best)} on the front"
    )
    for reason, count in Counter(trial.reason for trial in pruned).most_common(5):
        report.say(f"  pruned {count}: {reason}")
    report.say("cycles simulated by the timing model; host modelled; block RAMs and DSPs by rule, LUTs by a fit")


def _document(question: Question, trials: list[Trial], best: list[Trial]) -> dict:
    def plain(some: Iterable[Trial]) -> list[dict]:
        return [
            {"trial": one.number, "values": dict(one.values), **one.found}
            | ({} if one.reason else {"config": question.space.point(one.values).config.to_dict()})
            for one in some
        ]

    return {
        "networks": list(question.networks),
        "contract": _contracts(question),
        "objectives": list(question.objectives),
        "combinations": question.space.size,
        "trials": len(trials),
        "repeated": sum(not trial.new for trial in trials),
        "pruned": [
            {"trial": one.number, "values": dict(one.values), "reason": one.reason} for one in trials if one.reason
        ],
        "front": plain(best),
        "every": plain(one for one in trials if not one.reason),
    }


def _plot(path: str, trials: list[Trial], best: list[Trial], question: Question) -> None:
    """The first objective against each of the others, and the front in colour."""
    need("a plot", "plots", "matplotlib")
    from matplotlib.figure import Figure

    first, *others = question.objectives if len(question.objectives) > 1 else (*question.objectives, "bram")
    figure = Figure(figsize=(4.2 * len(others), 3.6), layout="constrained")
    for place, other in zip(figure.subplots(1, len(others), squeeze=False)[0], others):
        for some, style in (([t for t in trials if not t.reason], "0.75"), (best, "C0")):
            place.plot([t.found[other] for t in some], [t.found[first] for t in some], "o", color=style, markersize=4)
        place.set_xlabel(_COLUMNS[other])
        place.set_ylabel(_COLUMNS[first])
        place.set_yscale("log")
    report.save_figure(figure, path)
