"""`tilewright report`: runs a program once, and collects the data of the page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ...hw.config import Config, load_config
from ...hw.errors import FileError, UnsupportedError
from ...hw.needs import need
from ...runtime.device import Stats
from ...runtime.executable import Executable, LaunchStep
from ...runtime.files import atomic_write
from ...runtime.loader import StepReport
from ...runtime.loader import run as run_on
from ...runtime.steps import sources
from ...sim.dram import Dram, load_dram
from .. import report as output
from ..assign import arenas
from ..layers import float_steps, ran
from ..options import (
    DEFAULT_CONFIG,
    NO_CHOICES,
    TIMED,
    Choices,
    Where,
    choice_options,
    config_option,
    contract_option,
    device_option,
    dram_option,
    input_type_option,
    json_option,
    mapping_option,
    picture_options,
    shape_option,
    target_option,
)
from ..profile import declared, launches_of, profile
from ..programs import (
    MODEL_HELP,
    check_output,
    graph_in,
    is_network,
    open_program,
    python_value,
    read_graph,
    read_target,
)
from ..remedy import remedy, say_remedy
from ..run import check_run, samples_for
from . import difference, measured
from .page import page
from .timeline import Collected

if TYPE_CHECKING:
    from ...apps.quantise.samples import Pictures
from ...compiler.network import Compiled

_SEED = 0  # of random inputs
_SMALL = 10_000_000  # multiply-accumulates and element operations that the definition executes in seconds
HELP = f"""Run MODEL once and write a page about it: where each operator runs and why, its cycles, the timeline of the
units with waits and tokens, memory, limits of the machine, exactness, and what makes it slow.

The page is one file, which needs no network; the data are inside, and --json prints them. With --compare the page has
the differences from an earlier report, what --json printed then. Every number is shown with its source.

{MODEL_HELP} Of a program with several entries the first is shown."""


@click.command(help=HELP)
@click.argument("model")
@click.option("-o", "--output", "path", metavar="X.html", help="The page to write.")
@device_option("timing")
@config_option(None, "As for compile (default: pynq_z1; a .tw program: the one it was compiled for).")
@choice_options(contract_option, mapping_option, target_option, dram_option, input_type_option, shape_option)
@picture_options
@click.option(
    "--inputs", metavar="X.npz|X.npy|DIR", help="Take the first inputs of this file, as of `run`, not random ones."
)
@click.option("--compare", metavar="A.json", help="Show the differences from this earlier report.")
@json_option
def command(
    model: str,
    path: str | None,
    device: str,
    config: str | None,
    choices: Choices,
    picture: Pictures | None,
    inputs: str | None,
    compare: str | None,
    as_json: bool,
) -> int:
    """Run, write the page, and return the exit status: 1 where results differ from what they must equal."""
    if path is None and not as_json:
        raise UnsupportedError("report: nothing to write; give -o X.html, or --json")
    if path is not None:
        sources = {"MODEL": model, "--inputs": inputs, "--config": config, "--compare": compare}
        check_output(path, (".html",), sources)
        need("the page of a report", "report", "bokeh")
    with output.progress(f"reporting on {model}"):
        found = _report(model, config, device, inputs, compare, choices, picture)
        if path is not None:
            found.save(path)
    if as_json:
        output.say(found.to_json())
    else:
        output.say(f"{found!r}\n{found.data['exactness']['text']}\npage written to {path}")
        output.say_contract(found.data["contract"])
        say_remedy(found.data["placement"]["remedy"])
    return int(found.data["exactness"]["equal"] is False)


@dataclass(frozen=True)
class _Opened:
    """Subject of the report: its file, its executable, and for a network the result and the options of compiling it."""

    source: str
    executable: Executable
    compiled: Compiled | None = None
    choices: Choices = NO_CHOICES


@dataclass(frozen=True)
class _Run:
    """One run: where, its inputs with their source, results and reports."""

    where: Where
    inputs: Mapping[str, np.ndarray]
    given: str
    outputs: Mapping[str, np.ndarray]
    reports: Sequence[StepReport]


def report(
    model: str | Path | Executable,
    config: str | Config | None = None,
    *,
    on: str = "timing",
    inputs: str | Path | None = None,
    dram: str | None = None,
    contract: str | None = None,
    mapping: str | None = None,
    compare: str | Path | None = None,
    target: str | None = None,
) -> Report:
    """Run `model` once on the device `on`, and report on it: a value that notebooks show as a page.

    `model` is what `tilewright run` takes, or an `Executable`; `config` a name or file, or a `Config`. `inputs` is a
    file of inputs, of which the first are used, without it they are random numbers; `compare` an earlier report's JSON.
    Other arguments are as the options of `tilewright run`.

    >>> import tilewright as tw
    >>> found = tw.report("examples/digits/digits.onnx")
    >>> sum(row["cycles"] for row in found.data["operators"] if "cycles" in row) == found.cycles
    True

    Raises as `compile`, `load` and a run do, and `FileError` where `compare` is no report. The page needs the extra
    `report`, the data do not.
    """
    choices = Choices(contract=contract, mapping=mapping, target=target, dram=dram)
    return _report(model, config, on, inputs, compare, choices)


def _report(
    model: str | Path | Executable,
    config: str | Config | None,
    on: str,
    inputs: str | Path | None,
    compare: str | Path | None,
    choices: Choices,
    picture: Pictures | None = None,
) -> Report:
    where = Where(on, dram=choices.dram)
    where.check()
    before = None if compare is None else difference.read(compare)
    opened = _open(model, config, choices)
    run = _run(opened, where, None if inputs is None else str(inputs), picture)
    data = _document(opened, run)
    if before is not None:
        data["difference"] = difference.between(before, data, str(compare))
    return Report(data)


def _open(model: str | Path | Executable, config: str | Config | None, choices: Choices) -> _Opened:
    if isinstance(model, Executable):
        options = {"contract": choices.contract, "mapping": choices.mapping, "target": choices.target}
        if given := [name for name, value in options.items() if value]:
            raise UnsupportedError(f"{given[0]}: a compiled program has none to choose; give the network")
        model.check_config(None if config is None else load_config(config), model.name)
        return _Opened(model.name, model.first_entry())
    source = str(model)
    cfg = load_config(config or DEFAULT_CONFIG)
    if not is_network(source) and graph_in(python_value(source, cfg)) is None:
        executable = open_program(source, config, choices)
        return _Opened(source, executable.first_entry())
    from ...compiler.mapping import ChannelMapping, regroup
    from ...compiler.network import compile_for

    graph = read_graph(source, cfg, choices)
    if choices.mapping is not None:
        graph = regroup(graph, ChannelMapping.of(choices.mapping), cfg)
    dram = None if choices.dram is None else load_dram(choices.dram)
    compiled = compile_for(graph, cfg, target=read_target(choices.target, cfg), dram=dram)
    return _Opened(source, compiled.executable, compiled, replace(choices, contract=compiled.executable.contract))


def _run(opened: _Opened, where: Where, path: str | None, picture: Pictures | None) -> _Run:
    """One run with the first inputs of the file at `path`, or with random ones."""
    if path is None:
        inputs, given = random_inputs(opened.executable), f"random inputs, seed {_SEED}"
    else:
        inputs, given = samples_for(opened.executable, path, picture)[0], f"the first inputs of {Path(path).name}"
    with where.open(opened.executable) as loaded:
        outputs = loaded.run(inputs)
        return _Run(where, inputs, given, outputs, loaded.reports)


def random_inputs(executable: Executable) -> dict[str, np.ndarray]:
    """Random inputs of the program's first entry: any int8 value, small values of wider types, 0 for symbols."""
    fixed = set()
    for step in executable.steps:
        fixed |= {name for name, _ in sources(step, executable.tensors).values()} if hasattr(step, "symbols") else set()
        fixed |= {step.when.tensor} if step.when is not None else set()
    rng, found = np.random.default_rng(_SEED), {}
    for tensor in executable.entries[0]:
        dtype = np.dtype(tensor.dtype)
        if tensor.name in fixed:
            found[tensor.name] = np.zeros(tensor.shape, dtype)
        elif dtype.kind not in "iu":
            found[tensor.name] = rng.normal(size=tensor.shape).astype(dtype)
        else:
            info = np.iinfo(dtype if dtype.itemsize == 1 else np.int8)
            low = 0 if dtype.kind == "u" else info.min
            found[tensor.name] = rng.integers(low, info.max, tensor.shape, endpoint=True).astype(dtype)
    return found


def _document(opened: _Opened, run: _Run) -> dict[str, Any]:
    """All data of the report."""
    executable, clock, device = opened.executable, run.where.clock_hz, run.where.name
    cfg, dram = executable.cfg, _memory(run.where)
    rows = measured.operators(executable, run.reports, clock, opened.compiled)
    counted = profile(launches_of(executable, run.reports))["metrics"]
    collected, launches = Collected(), []
    for step, done in ran(executable, run.reports):
        if isinstance(step, LaunchStep):
            launches.append(measured.launch_facts(step, done, dram))
            if done.stats.timeline is not None:
                at = measured.instruction_rows(rows, step)
                collected.add(step.launch, done.stats.timeline(), done.stats.cycles or 0, at)
    return {
        "report": difference.VERSION,
        "tilewright": metadata.version("tilewright"),
        "program": executable.name,
        "model": Path(opened.source).name,
        "device": device,
        "source_of_cycles": measured.clock_source(device) if any(one["cycles"] for one in launches) else None,
        "config": cfg.to_dict() | {"name": cfg.name},
        "fingerprint": f"{cfg.fingerprint:016x}",
        "contract": executable.contract,
        "dram": None if dram is None else asdict(dram),
        "clock_mhz": clock / 1e6,
        "inputs": run.given,
        "summary": measured.summary(executable, run.reports, rows, device, dram, clock, opened.compiled, counted),
        "placement": measured.placement(opened.compiled, executable, rows)
        | {"remedy": remedy(opened.source, executable)},
        "operators": rows,
        "float32_on_host": float_steps(executable),
        "launches": launches,
        "timeline": collected.to_dict() if collected.tracks else None,
        "arenas": arenas(opened.compiled),
        "buffers": measured.buffers(executable, run.reports),
        "roofline": measured.roofline(cfg, dram, rows),
        "exactness": _exactness(opened, run),
        "metrics": {
            name: {"value": counted[name], **meaning, "by": list(meaning["by"])}
            for name, meaning in declared([cfg], list(counted)).items()
        },
        "difference": None,
    }


def _memory(where: Where) -> Dram | None:
    """The memory that the device simulates; None for devices without one."""
    return load_dram(where.dram) if where.name in TIMED else None


def _exactness(opened: _Opened, run: _Run) -> dict[str, Any]:
    """The reference of the results, and whether they are equal; `equal` is None without a reference."""
    if opened.compiled is not None:
        cfg = opened.executable.cfg
        found = check_run(opened.source, cfg, opened.choices, run.where, [run.inputs], [run.outputs])
        text = f"{found['text']} ({run.given})"
        return {"reference": "golden interpreter", **found, "text": text}
    return _compared(opened.executable, run)


def _compared(executable: Executable, run: _Run) -> dict[str, Any]:
    """A program without golden values against another device: the behavioural model, or the definition."""
    other = "spec" if run.where.name in ("model", "timing") else "model"
    stats = sum((done.stats for done in run.reports), Stats())
    work = stats.macs + stats.uops * executable.cfg.lanes
    if other == "spec" and work > _SMALL:
        text = f"not compared: too large for the definition of the instruction set ({work:,} operations); "
        return {"reference": None, "equal": None, "text": text + "--on rtl compares the circuit with the model"}
    results, _ = run_on(executable, run.inputs, other)
    wrong = [name for name, value in run.outputs.items() if not np.array_equal(results[name], value)]
    values = sum(value.size for value in run.outputs.values())
    what = "the definition of the instruction set" if other == "spec" else "the behavioural model"
    told = f"{', '.join(wrong)} differ" if wrong else f"all {values:,} values of the results are equal"
    text = f"{what}: {told} ({run.given})"
    return {"reference": what, "equal": not wrong, "elements": values, "differing": wrong, "text": text}


@dataclass(frozen=True, eq=False)
class Report:
    """The `data` of a report, values that JSON can hold; docs/report.md describes them. A notebook shows the page."""

    data: dict[str, Any]

    @property
    def cycles(self) -> int | None:
        """Cycles of all launches; None where the device counts none."""
        known = [one["cycles"] for one in self.data["launches"] if one["cycles"] is not None]
        return sum(known) if known else None

    def to_json(self) -> str:
        """The data as one JSON document."""
        return json.dumps(self.data, separators=(",", ":"))

    def to_html(self) -> str:
        """The page, one document that needs no other file and no network."""
        return page(self.data)

    def save(self, path: str | Path) -> None:
        """Write the page, .html, or the data, .json; atomically. Raises `FileError`."""
        kind = Path(path).suffix
        if kind not in (".html", ".json"):
            raise FileError(f"{path}: must end in .html or .json; give another name")
        text = self.to_html() if kind == ".html" else self.to_json() + "\n"
        with atomic_write(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        cycles = "no cycles" if self.cycles is None else f"{self.cycles:,} cycles"
        data = self.data
        return f"Report({data['program']!r} on {data['config']['name']}, {data['device']}: {cycles})"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its styles and scripts stay apart from the notebook's."""
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" style="width:100%;height:900px;border:1px solid #ccc" '
            f'title="{html.escape(repr(self))}"></iframe>'
        )
