"""`tilewright tune`: tiles of a network's layers, or the decisions of an own schedule, by trials in parallel."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..apps.explore import cluster
from ..compiler.cost import on_memory
from ..compiler.frontend.source import check_kind
from ..compiler.jobs import Outcome, Store, content_key
from ..hw.config import Config, load_config
from ..hw.errors import InputError, UnsupportedError
from ..runtime.registry import describe_devices, is_server
from ..sim.dram import load_dram
from ..sim.timing import check_memory
from . import report
from .options import (
    Choices,
    config_option,
    contract_option,
    device_options,
    dram_option,
    json_option,
    scheduler_option,
    shape_option,
)
from .programs import NETWORKS, compile_source, is_network, python_value
from .remedy import remedy

if TYPE_CHECKING:
    from ..compiler.tune.tasks import Line, Measurer

COLUMNS = ["task", "times", "trials", "no program", "cycles before", "best", "gain"]
_ON = f"What counts cycles: {describe_devices()}, or a server, NAME:PORT. `model` and `spec` count none."


@click.command()
@click.argument("model")
@click.option("--trials", type=click.IntRange(1), default=32, show_default=True, help="Trials of each task.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that try at a time.")
@scheduler_option
@click.option("--db", default="tiles.db", show_default=True, metavar="FILE", help="The database of all trials.")
@click.option("--on", "device", default="timing", show_default=True, metavar="DEVICE", help=_ON)
@dram_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random proposals.")
@config_option()
@contract_option
@shape_option
@json_option
def command(
    model: str,
    trials: int,
    jobs: int,
    scheduler: str | None,
    db: str,
    device: str,
    dram: str | None,
    seed: int,
    config: str,
    contract: str | None,
    shapes: dict[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Find faster tiles for the layers of MODEL, a quantised network, by building and timing programs.

    Every trial is kept in the database; the same command, started again, goes on where it stopped. At the end the
    best tiles are compared in the program of the whole network; `compile --tiles FILE` uses those that help.

    MODEL may also be FILE.py:NAME, a pair (PrimFunc, function that schedules it) or a function of the configuration
    that returns one: then the decisions of the schedule are tuned.
    """
    from ..compiler.tune.tasks import Measurer, check_device

    check_device(device)
    if device == "board" and (jobs > 1 or scheduler is not None):
        asked = f"--jobs {jobs}" if scheduler is None else f"--scheduler {scheduler}"
        raise InputError(f"{asked}: one board runs one program at a time; use --jobs 1, or a server")
    if dram is not None and is_server(device):
        raise InputError(f"--dram {dram}: a server's device has a memory of its own; leave --dram out")
    memory: Any = {} if is_server(device) else device_options(device, None, (), dram)
    memory = memory.get("dram")
    cfg, start = load_config(config), time.perf_counter()
    if device == "timing":
        check_memory(cfg, load_dram(memory))
    with ExitStack() as stack:
        store = stack.enter_context(Store(db))
        workers = stack.enter_context(cluster.workers(jobs, scheduler))
        tuning = _Tuning(model, cfg, contract, shapes, Measurer(device, memory), trials, seed, store, workers)
        found = tuning.network() if is_network(model) else tuning.schedule()
    found |= {"database": db, "config": cfg.name, "fingerprint": f"{cfg.fingerprint:016x}", "device": device}
    found |= {"jobs": jobs, "seconds": time.perf_counter() - start}
    if as_json:
        report.emit_json(found)
    else:
        _print(found)


@dataclass(frozen=True)
class OwnTrial:
    """The `decisions` of the schedule `source`, FILE.py:NAME, to try.

    `function` is the key of what it computes, `code` a digest of the file.
    """

    source: str
    function: str
    code: str
    cfg: Config
    decisions: tuple
    measurer: Measurer
    first: bool = False

    @property
    def key(self) -> str:
        """The key of its result."""
        return content_key(self.function, self.code, self.decisions, self.measurer.facts(), self.first)

    @property
    def topic(self) -> str:
        """The topic of its result."""
        return f"own {self.function}"


def measure_own(trial: OwnTrial) -> dict[str, Any]:
    """The record of a trial, as of `compiler.tune.tasks.measure`."""
    from ..compiler.api import build
    from ..compiler.tune.tasks import recorded
    from ..compiler.tune.trials import decided

    def launch():
        func, schedules = python_pair(trial.source, trial.cfg)
        return build(decided(func, schedules, trial.decisions), trial.cfg).finish()

    return recorded(launch, list(trial.decisions), trial.first, trial.source, trial.measurer)


def python_pair(source: str, cfg: Config) -> tuple[Any, Callable]:
    """The function and what schedules it, of `source`, FILE.py:NAME. Raises `InputError` for anything else."""
    value = python_value(source, cfg)
    if value is None:
        if not source.endswith(".py"):
            check_kind(source)
        raise UnsupportedError(f"{source}: must be a network, {', '.join(NETWORKS)}, or FILE.py:NAME")
    if not (isinstance(value, tuple) and len(value) == 2 and callable(value[1])):
        raise InputError(f"{source}: is {type(value).__name__}; tune takes a pair (PrimFunc, function that schedules)")
    return value


@dataclass(frozen=True)
class _Tuning:
    """Settings of one call of the command."""

    model: str
    cfg: Config
    contract: str | None
    shapes: Mapping[str, tuple[int, ...]]
    measurer: Measurer
    trials: int
    seed: int
    store: Store
    workers: Any

    def network(self) -> dict[str, Any]:
        """Tune the layers of a network, choose tiles for it."""
        from ..compiler.network_tuning import Network, choose
        from ..compiler.tune.tasks import measure, tile_line

        with report.progress(f"reading {self.model}"):
            network = Network.of(self.model, self.cfg, self.contract, self.measurer.dram, self.shapes)
            tasks = network.tasks()
            with on_memory(self.measurer.dram, self.cfg):
                lines = [tile_line(task, self.measurer, self.seed) for task in tasks]
        counts = self._evolve(lines, measure)
        with report.progress("comparing whole programs") as advance:
            choice = choose(network, tasks, self.store, self.workers, lambda _: advance())
        rows = [_row(task.text, task.count, line) for task, line in zip(tasks, lines)]
        gains = [
            row["times"] * (row["cycles before"] - row["best"]) for row in rows if row["cycles before"] is not None
        ]
        choices = Choices(contract=self.contract, shapes=self.shapes)
        whole = {"before": choice.before, "after": choice.after, "layers_with_tiles": len(choice.tiles)}
        return {
            "model": self.model,
            "tasks": rows,
            "gain_of_layers": sum(gains),
            "network": whole,
            "contract": network.contract,
            "remedy": None if tasks else remedy(self.model, compile_source(self.model, self.cfg, choices)),
        } | counts

    def schedule(self) -> dict[str, Any]:
        """Tune an own schedule."""
        from ..compiler.tune.sampling import Evolution
        from ..compiler.tune.search import circuit
        from ..compiler.tune.tasks import Line
        from ..compiler.tune.trials import own_space
        from ..compiler.tvm_compat import structural_hash

        func, schedules = python_pair(self.model, self.cfg)
        name = f"{self.cfg.fingerprint:016x}/{content_key(structural_hash(func), circuit(self.cfg))}"
        code = hashlib.sha256(Path(self.model.rpartition(":")[0]).read_bytes()).hexdigest()
        trial = OwnTrial(self.model, name, code, self.cfg, (), self.measurer)
        line = Line(
            Evolution(own_space(func, schedules), seed=self.seed),
            lambda decisions, first: dataclasses.replace(trial, decisions=decisions, first=first),
        )
        counts = self._evolve([line], measure_own)
        best = line.best
        found = {"model": self.model, "tasks": [_row(self.model, 1, line)]} | counts
        return found | {"decisions": best["decisions"] if best else None}

    def _evolve(self, lines: Sequence[Line], function: Callable) -> dict[str, int]:
        """Run all trials. Returns the number of new trials, and of trials that the database had."""
        from ..compiler.tune.tasks import evolve

        counts = {"new_trials": 0, "known_trials": 0}
        with report.progress(f"tuning {self.model}", self.trials * len(lines)) as advance:

            def done(outcome: Outcome) -> None:
                counts["new_trials" if outcome.new else "known_trials"] += 1
                advance()

            evolve(lines, function, self.trials, store=self.store, workers=self.workers, on_done=done)
        return counts


def _row(text: str, count: int, line: Line) -> dict[str, Any]:
    before, best = line.before, line.best
    failed = sum(each["cycles"] is None for each in line.records)
    row: dict[str, Any] = {"task": text, "times": count, "trials": len(line.records), "no program": failed}
    fastest = None if best is None else best["cycles"]
    gain = 1 - fastest / before if before and fastest else None
    return row | {"cycles before": before, "best": fastest, "gain": gain}


def _print(found: dict[str, Any]) -> None:
    rows = found["tasks"]
    cells = [[row[c] if row[c] is not None else "" for c in COLUMNS[:-1]] + [_percent(row["gain"])] for row in rows]
    report.table(COLUMNS, cells)
    trials = f"{found['new_trials']:,} new trials, {found['known_trials']:,} known before"
    report.say(f"{trials}, {report.counted(found['jobs'], 'job')} at a time, {found['seconds']:.1f} s")
    report.say_contract(found.get("contract"))
    if "network" in found:
        whole = found["network"]
        gain = _percent(1 - whole["after"] / whole["before"] if whole["before"] else None)
        report.say(f"layers alone: {found['gain_of_layers']:,} cycles saved in all, weighted by how often they occur")
        report.say(
            f"network: {whole['before']:,} cycles without, {whole['after']:,} with tiles of "
            f"{report.counted(whole['layers_with_tiles'], 'layer')}: {gain} gained in the timing model"
        )
        if found["remedy"] is not None:
            report.say(found["remedy"])
            return
        report.say(f"use them: tilewright compile {found['model']} --tiles {found['database']} -o X.tw")
    elif found["decisions"] is not None:
        report.say(f"decisions of the fastest: {found['decisions']}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
