"""`tilewright diff`: networks in LiteRT's interpreter, with the delegate and without: differences, labels, times.

The reference is LiteRT's reference kernels (resolver BUILTIN_REF). Its optimised kernels round otherwise, and are only
timed.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..apps.delegate.delegate import TilewrightDelegate
from ..apps.quantise.samples import Input, Pictures, Samples, read_samples
from ..compiler.frontend.source import check_kind, kind_of
from ..hw.config import Config, load_config
from ..hw.errors import FileError, InputError, UnsupportedError
from ..hw.foreign import read_npz
from ..hw.needs import need
from ..runtime.executable import Executable
from ..runtime.registry import device_entry
from . import report
from .options import Where, config_option, json_option, picture_options, where_options
from .profile import Profile, profile_option

COLUMNS = ["network", "operators taken", "partitions", "outputs that differ", "by at most", "labels LiteRT"]
COLUMNS += ["labels", "CPU ms", "A9 ms", "A9 + accelerator ms", "accelerator ms"]


@click.command()
@click.argument("networks", nargs=-1, required=True, metavar="NET.tflite...")
@click.option(
    "--inputs",
    multiple=True,
    metavar="X.npz|X.npy|DIR",
    help="The inputs as `run` takes them, once per network; without: random ones.",
)
@click.option("--labels", multiple=True, metavar="Y.npz", help="Their `labels`; without: those of the inputs' file.")
@click.option("--samples", default=3, type=click.IntRange(min=1), show_default=True, help="Random inputs per network.")
@click.option("--claim", multiple=True, metavar="OPERATOR", help="Take these operators alone, as CONV_2D.")
@click.option(
    "--min-macs",
    default=0,
    type=click.IntRange(min=0),
    show_default=True,
    metavar="N",
    help="Leave partitions of fewer multiply-accumulates to the interpreter.",
)
@picture_options
@where_options
@profile_option
@config_option()
@json_option
def command(
    networks: tuple[str, ...],
    inputs: tuple[str, ...],
    labels: tuple[str, ...],
    samples: int,
    claim: tuple[str, ...],
    min_macs: int,
    picture: Pictures | None,
    where: Where,
    profiles: tuple[str, ...],
    config: str,
    as_json: bool,
) -> int:
    """Compare NET.tflite in LiteRT's interpreter with the delegate on the accelerator, and without it.

    Compared are the outputs and, in further runs, the result of each operator, with LiteRT's reference kernels; with
    labels also how many samples have theirs as the largest output. Times are one inference: LiteRT with its default
    kernels on one thread of this machine, measured; a Cortex-A9 at 650 MHz alone, modelled; the same with the
    accelerator, and the accelerator's part of that, whose cycles are simulated unless the device is a board. The
    status is 1 if a value differs.
    """
    where.check()
    for option, given in (("--inputs", inputs), ("--labels", labels)):
        if given and len(given) != len(networks):
            many = report.counted(len(networks), "network")
            raise InputError(f"{option}: {len(given)} given for {many}; give one for each, in their order")
    for path in networks:
        _check_kind(path)
    sources: dict[str, str | None] = {f"network {k}": path for k, path in enumerate(networks, 1)}
    profile = Profile(profiles, where.name, {"--config": config} | sources)
    chosen = claim or None, min_macs, samples, profile if profiles else None
    setup = Setup(load_config(config), where.name, where.open, where.clock_hz, *chosen)
    results = []
    with report.progress("comparing", len(networks)) as advance:
        for k, path in enumerate(networks):
            read = partial(read_samples, inputs[k], picture=picture) if inputs else None
            known = _labels(labels[k]) if labels else None
            results.append(compared(path, setup, read, known, inputs[k] if inputs else path))
            advance()
    found = {"config": setup.config.name, "device": where.name, "contract": "double", "clock_mhz": where.clock_hz / 1e6}
    found["networks"] = [result.to_dict() for result in results]
    found |= profile.write("diff", found)
    if as_json:
        report.emit_json(found)
    else:
        profile.say(found)
        _print(results, where)
    return int(not all(result.equal for result in results))


def _check_kind(path: str) -> None:
    """Raise as `check_kind`, and `UnsupportedError` for a network that is not a .tflite file."""
    check_kind(path)
    if kind_of(path) != ".tflite":
        raise UnsupportedError(f"{path}: diff runs TFLite's interpreter; give .tflite files")


def _labels(path: str) -> np.ndarray:
    arrays = read_npz(path)
    if "labels" not in arrays:
        raise FileError(f"{path}: holds {', '.join(arrays) or 'nothing'}, expected `labels`")
    return arrays["labels"]


def _print(results: list[Result], where: Where) -> None:
    """A line per network, and below them the operators whose results differ."""
    report.table(COLUMNS, [_row(result) for result in results])
    for result in results:
        for note in result.notes:
            report.say(f"{Path(result.network).stem}: {note}")
        if result.remedy is not None:
            report.say(f"{Path(result.network).stem}: {result.remedy}")
        wrong = [layer for layer in result.layers if layer.differing]
        if wrong:
            report.say(f"{Path(result.network).stem}: operators whose results differ, in order")
            rows = [
                [w.operator, "accelerator" if w.accelerated else "LiteRT", w.differing, w.values, w.largest]
                for w in wrong
            ]
            report.table(["operator", "where", "values that differ", "of", "largest"], rows)
    report.say_contract("double")
    report.say("dense layers round once, as LiteRT's do")
    at = f"{where.clock_hz / 1e6:g} MHz"
    counted = f"simulated, if it closes at {at}" if device_entry(where.name).simulated else f"counted, at {at}"
    report.say(
        f"CPU: LiteRT on one thread of this machine, measured; A9: a Cortex-A9 at 650 MHz, modelled; accelerator: "
        f"{where.name}, {counted}"
    )


def _row(result: Result) -> list[object]:
    labels = [f"{n} of {result.labelled}" if result.labelled else "" for n in result.labels]
    times = (result.cpu_ms, result.alone_ms, result.together_ms, result.accelerator_ms)
    shown = ("?" if time is None else f"{time:.3f}" for time in times)
    taken = f"{result.taken} of {result.operators}"
    differing = f"{result.outputs.differing:,} of {result.outputs.values:,}"
    name = Path(result.network).stem
    return [name, taken, result.partitions, differing, result.outputs.largest, *labels, *shown]


TIMED_RUNS = 11  # of the CPU; the median counts


@dataclass
class Layer:
    """The results of one operator in all runs: how many values differ, and by how much at most.

    `accelerated`: whether the delegate computes it.
    """

    operator: str
    accelerated: bool
    values: int = 0
    differing: int = 0
    largest: float = 0

    def add(self, found: np.ndarray, expected: np.ndarray) -> None:
        """Count the values of one run."""
        wide = np.float64 if expected.dtype.kind == "f" else np.int64
        wrong = (found != expected) & ~((found != found) & (expected != expected))  # NaNs are equal
        apart = np.abs(found[wrong].astype(wide) - expected[wrong].astype(wide))
        self.values += expected.size
        self.differing += int(wrong.sum())
        self.largest = max(self.largest, apart.max(initial=0).item())


@dataclass(frozen=True)
class Setup:
    """Settings shared by all networks. `load` loads an executable, `clock` is the accelerator's in Hz.

    `profile` gets the last run of each partition.
    """

    config: Config
    device: str
    load: Callable[[Any], Any]
    clock: float
    claim: Collection[str] | None
    min_macs: int
    samples: int
    profile: Profile | None = None

    def delegate(self, path: str, load: Callable[[Any], Any], *, every: bool) -> TilewrightDelegate:
        """A delegate for the network at `path`, whose executables `load` loads; see there for `every`."""
        chosen = {"claim": self.claim, "min_macs": self.min_macs, "every": every}
        return TilewrightDelegate(path, self.config, load, **chosen)


@dataclass(frozen=True)
class Result:
    """Result of the comparison of one network.

    `outputs` are its outputs as it is run, `layers` all operators, from runs in which every operator's result is kept.
    `labels` are how many of `labelled` samples have theirs as the place of the first output's largest value: with the
    reference kernels, and with the delegate.

    Times are of one inference: LiteRT on this machine; a modelled Cortex-A9 alone; the same with the accelerator, whose
    part `accelerator_ms` is. Where an operator has no model, the second or third is None. `notes` say how data were
    read, `remedy` what to do where no operator is taken.
    """

    network: str
    samples: int
    outputs: Layer
    layers: tuple[Layer, ...]
    labelled: int
    labels: tuple[int, int]
    operators: int
    taken: int
    partitions: int
    macs: int
    cycles: int
    cpu_ms: float
    alone_ms: float | None
    together_ms: float | None
    accelerator_ms: float
    notes: tuple[str, ...] = ()
    remedy: str | None = None

    @property
    def equal(self) -> bool:
        """Whether every value is."""
        return not any(layer.differing for layer in (self.outputs, *self.layers))

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON-ready values, and of what kind each time is."""
        found = asdict(self) | {"equal": self.equal}
        found["labels"] = dict(zip(("reference", "delegate"), self.labels))
        modelled = "modelled, Cortex-A9 at 650 MHz"
        kinds = {"cpu_ms": "measured on this machine", "alone_ms": modelled, "together_ms": f"{modelled}, and cycles"}
        return found | {"kinds": kinds | {"accelerator_ms": "cycles of `device`"}}


def compared(
    path: str,
    setup: Setup,
    read: Callable[[Sequence[Sequence[Input]]], Samples] | None,
    labels: np.ndarray | None,
    source: str,
) -> Result:
    """Run the network at `path` on the samples that `read` reads from the file `source`, else on random ones.

    `labels` are by default those of the samples, where the network classifies. Raises the
    errors of `TilewrightDelegate`, and `InputError` where samples or labels do not fit.
    """
    need("comparing with LiteRT", "compiler", "ai_edge_litert")
    loaded: list[tuple[Executable, Any]] = []  # partitions as they are run

    def load(executable: Executable) -> Any:
        loaded.append((executable, setup.load(executable)))
        return loaded[-1][1]

    plain, every = setup.delegate(path, load, every=False), setup.delegate(path, setup.load, every=True)
    reference, mine = _interpreter(path, keep=True), _interpreter(path, plain)
    watched = _interpreter(path, every, keep=True)
    data = None if read is None else read([_inputs(plain, reference)])
    samples = _random_samples(reference, setup.samples) if data is None else [[*sample.values()] for sample in data]
    outputs, layers, right = Layer("outputs", True), _layers(every), [0, 0]
    if labels is None and data is not None and not _reconstructs(reference):
        labels = data.labels
    if labels is not None:
        _check_labels(labels, len(samples), reference, source)
    for k, sample in enumerate(samples):
        expected, found = _outputs(reference, sample), _outputs(mine, sample)
        for one, other in zip(found, expected, strict=True):
            outputs.add(one, other)
        if labels is not None:
            for side, values in enumerate((expected, found)):
                right[side] += int(values[0].argmax() == labels[k])
        _outputs(watched, sample)
        for number, layer in layers.items():
            _count(layer, every.values.get(number), watched, reference, number)
    if setup.profile is not None:
        for executable, partition in loaded:
            setup.profile.add_run(executable, partition.reports, Path(path).stem)
    report = plain.report()
    accelerator, left = report.cycles / setup.clock, report.left_seconds
    return Result(
        network=path,
        samples=len(samples),
        outputs=outputs,
        layers=tuple(layers.values()),
        labelled=0 if labels is None else len(samples),
        labels=(right[0], right[1]),
        operators=report.operators,
        taken=report.operators - len(report.left),
        partitions=len(report.partitions),
        macs=sum(part.macs for part in report.partitions),
        cycles=report.cycles,
        cpu_ms=_cpu_ms(path, samples[0]),
        alone_ms=None if report.alone_seconds is None else 1e3 * report.alone_seconds,
        together_ms=None if left is None else 1e3 * (accelerator + report.host_seconds + left),
        accelerator_ms=1e3 * accelerator,
        notes=() if data is None else tuple(data.notes),
        remedy=None if report.partitions else _remedy(path, report.left),
    )


def _remedy(path: str, left: Sequence[tuple[str, str]]) -> str:
    """What to do about a network of which no operator is taken; `left` has the operators with the reasons."""
    ((why, _),) = Counter(why for _, why in left).most_common(1) or [("it has none", 0)]
    return (
        f"no operator is on the accelerator ({why}); tilewright quantise {path} --calibration DATA.npz makes an int8 "
        "network of a float one"
    )


def _interpreter(path: str, *delegates: TilewrightDelegate, keep: bool = False) -> Any:
    """An interpreter with the reference kernels, ready for inputs; with `keep` it keeps every tensor."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    made = Interpreter(
        path,
        experimental_delegates=list(delegates),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=keep,
    )
    made.allocate_tensors()
    return made


def _inputs(delegate: TilewrightDelegate, interpreter: Any) -> list[Input]:
    """The network's inputs, in the file's order."""
    names = [delegate.file.tensors[k].name for k in delegate.file.inputs]
    details = interpreter.get_input_details()
    return [Input(name, tuple(map(int, d["shape"])), np.dtype(d["dtype"])) for name, d in zip(names, details)]


def _random_samples(interpreter: Any, count: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    return [[_random(rng, detail) for detail in interpreter.get_input_details()] for _ in range(count)]


def _random(rng: np.random.Generator, detail: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(detail["dtype"]), detail["shape"]
    if dtype.kind not in "iu":
        return rng.normal(size=shape).astype(dtype)
    info = np.iinfo(dtype) if dtype.itemsize == 1 else np.iinfo(np.int8)  # what is wider may be an index
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def _reconstructs(interpreter: Any) -> bool:
    """Whether an output is as large as an input: then its largest value does not name a class."""
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    return any(tuple(x["shape"]) == tuple(y["shape"]) for x in inputs for y in outputs)


def _check_labels(labels: np.ndarray, samples: int, interpreter: Any, source: str) -> None:
    """Raise `InputError` unless there is a class for each of the `samples`."""
    if labels.dtype.kind not in "iu":
        raise InputError(f"{source}: labels of type {labels.dtype}; give the numbers of classes as integers")
    if labels.shape != (samples,):
        raise InputError(f"{source}: labels of shape {labels.shape} for {samples} samples; give one per sample")
    classes = int(np.prod(interpreter.get_output_details()[0]["shape"]))
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise InputError(f"{source}: label {wrong[0]}: the first output has {classes} classes, 0 to {classes - 1}")


def _outputs(interpreter: Any, sample: Sequence[np.ndarray]) -> list[np.ndarray]:
    for detail, x in zip(interpreter.get_input_details(), sample, strict=True):
        interpreter.set_tensor(detail["index"], x)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def _layers(delegate: TilewrightDelegate) -> dict[int, Layer]:
    """A layer for each result of the network's operators, by tensor number."""
    left = {name for name, _ in delegate.report().left}
    nodes = delegate.file.nodes
    return {k: Layer(node.name, node.name not in left) for node in nodes for k in node.outputs}


def _count(layer: Layer, kept: np.ndarray | None, watched: Any, reference: Any, number: int) -> None:
    """Count one run's values of a tensor, where both interpreters have it as an array."""
    try:
        expected = reference.get_tensor(number)
        found = watched.get_tensor(number) if kept is None else kept
    except ValueError:  # a variable, or a value that was never computed
        return
    if expected.dtype.kind in "biuf":
        layer.add(found.reshape(expected.shape), expected)


def _cpu_ms(path: str, sample: Sequence[np.ndarray]) -> float:
    """Milliseconds of LiteRT as it is by default, on one thread of this machine."""
    from ai_edge_litert.interpreter import Interpreter

    made, times = Interpreter(path, num_threads=1), []
    made.allocate_tensors()
    for detail, x in zip(made.get_input_details(), sample, strict=True):
        made.set_tensor(detail["index"], x)
    for _ in range(TIMED_RUNS):
        start = time.perf_counter()
        made.invoke()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)
