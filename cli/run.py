"""`tilewright run`: a program with the inputs of a file on a device, and its check against the golden interpreter."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click
import numpy as np

from ..apps.quantise.samples import Input, Pictures, Samples, check_data, read_samples
from ..compiler.frontend.source import counted_arrays, kind_of
from ..compiler.graph import Graph, reference
from ..compiler.graph.reference import Saturation, compare, initial_state
from ..compiler.target.variants import apart, of_images, of_one, together
from ..hw.config import Config, load_config
from ..hw.errors import InputError, UnsupportedError
from ..runtime.device import Stats
from ..runtime.executable import Executable, Tensor
from ..runtime.files import atomic_write
from ..runtime.loader import StepReport
from ..runtime.registry import device_entry
from . import report
from .layers import counter_rows, float_steps, print_run, run_rows, say_float_steps
from .options import (
    DEFAULT_CONFIG,
    Choices,
    Where,
    batch_option,
    choice_options,
    config_option,
    contract_option,
    input_type_option,
    json_option,
    mapping_option,
    picture_options,
    resident_option,
    shape_option,
    target_option,
    tiles_option,
    where_options,
)
from .profile import TO_PERFETTO, Profile, launches_of, profile_option, write_timeline
from .programs import (
    MODEL_HELP,
    NETWORKS,
    check_output,
    graph_in,
    is_network,
    open_program,
    python_value,
    read_graph,
    read_target,
)
from .remedy import remedy, say_remedy

SHOWN_LABELS = 20


HELP = f"""Run MODEL, a .tw program or what `compile` takes, once per input of X.npz.

X.npz holds `inputs`, or one array per input tensor under the tensor's name, or `input_0`, `input_1`, ... (or `arr_0`,
..., as numpy.savez names them) in the order of the network's tensors, or as many arrays as the network has inputs,
under any other names. For an input of shape (1, C, H, W) an array is one sample of that shape, or several, (N, 1, C, H,
W) or (N, C, H, W). X.npy is the array of a single input. DIR holds pictures, read in the order of their names as (pixel
/ 255 - mean) / std. A line says how data were read where that is not obvious.

With --batch, a run takes several samples at once; the last one fills up the last run. A network with state, as
streaming ones have, keeps it from one input to the next, in their order. If X.npz also holds `outputs`, or arrays
under the names of output tensors, or `output_0`, ..., or `labels`, the results are compared with them.
Y.npz gets `outputs`, or one array per output tensor if there are several.

{MODEL_HELP}"""


@click.command(help=HELP)
@click.argument("model")
@click.option("--inputs", required=True, metavar="X.npz|X.npy|DIR", help="The inputs: arrays, or pictures.")
@picture_options
@click.option("-o", "--output", metavar="Y.npz", help="The file to write the outputs to.")
@where_options
@config_option(None, "As for compile (default: pynq_z1; a .tw program: the one it was compiled for).")
@choice_options(
    contract_option,
    tiles_option,
    mapping_option,
    target_option,
    batch_option,
    input_type_option,
    shape_option,
    resident_option,
)
@click.option("--reset", is_flag=True, help="Start from the initial state with every input, not with the first alone.")
@click.option("--check", is_flag=True, help="Compare with the golden interpreter, operator by operator.")
@click.option("--trace", metavar="FILE", help="Write a timeline of the last input's run for ui.perfetto.dev, .json.")
@profile_option
@click.option("--counters", is_flag=True, help="Print the device's counters, and what the units wait for.")
@json_option
def command(
    model: str,
    inputs: str,
    output: str | None,
    where: Where,
    config: str | None,
    choices: Choices,
    picture: Pictures | None,
    reset: bool,
    check: bool,
    trace: str | None,
    profiles: tuple[str, ...],
    counters: bool,
    as_json: bool,
) -> int:
    """Load or compile, run every input, compare, write the outputs, print the steps, and return the exit status."""
    where.check()
    if check:
        need_network(model, cfg=load_config(config or DEFAULT_CONFIG))
    sources = {"MODEL": model, "--inputs": inputs, "--config": config}
    for path, suffix in ((output, ".npz"), (trace, ".json")):
        if path:
            check_output(path, (suffix,), sources)
    profile = Profile(profiles, where.name, sources)
    check_data(inputs)  # before the work
    with report.progress(f"preparing {model}"):
        choices = _with_sizes(model, choices, inputs, picture)
        executable = open_program(model, config, replace(choices, dram=where.dram))
    batch = choices.batch
    one = of_one(executable, batch)
    data = samples_for(one, inputs, picture)
    if choices.shapes:
        sizes = ", ".join(f"{t.name!r} ({', '.join(map(str, t.shape))})" for t in one.entries[0])
        data.notes.insert(0, f"compiled for inputs of shape {sizes}")
    samples, arrays, stacked = [*data], data.file, not data.single
    expected = _expected(one, arrays, len(samples) if stacked else None, inputs)
    sets = together(samples, batch)
    results, runs, seconds = _run(executable, where, sets, reset, choices.resident)
    results = apart(results, batch, len(samples))
    outputs = _collect(executable, results, stacked)
    compared = dict(zip((t.name for t in executable.outputs), outputs.values()))
    if output:
        write_npz(output, outputs)
    about = {"program": model, "config": executable.cfg.name, "device": where.name}
    about |= {"contract": executable.contract, "inputs": len(samples), "batch": batch, "notes": data.notes}
    result: dict[str, Any] = about | _compare(compared, expected, arrays, stacked)
    result |= {"seconds": seconds, "output": output, "float32_on_host": float_steps(executable)}
    result |= {"remedy": remedy(model, executable)}
    if check:
        result["check"] = check_run(model, executable.cfg, choices, where, samples, results, reset)
    rows = run_rows(executable, runs, where.clock_hz)
    result |= _resident(runs) if choices.resident else {}
    result |= _per_input(runs[: len(sets)], len(samples)) if batch > 1 else {}
    if trace:
        write_timeline(trace, launches_of(executable, runs[-1]), executable.name, where.name)
        result |= {"trace": trace}
    result |= profile.write_run(executable, runs[-1], about | {"clock_mhz": where.clock_hz / 1e6, "layers": rows})
    if as_json:
        counted = {"counters": {row["counter"]: row["value"] for row in counter_rows(runs)}} if counters else {}
        report.emit_json(result | {"clock_mhz": where.clock_hz / 1e6, "layers": rows} | counted)
    else:
        _print(rows, result, runs if counters else None, profile)
    return int(check and not (result["check"]["equal"] and result.get("values_equal") == result.get("values")))


def _with_sizes(model: str, choices: Choices, path: str, picture: Pictures | None) -> Choices:
    """The choices, with the sizes of the data at `path` for inputs of an ONNX network whose sizes are open."""
    if not is_network(model) or kind_of(model) != ".onnx":
        return choices
    from ..apps.quantise.onnx_network import sizes_of

    read = partial(read_samples, path, picture=picture)
    return replace(choices, shapes=sizes_of(model, choices.shapes or {}, read))


def _resident(runs: Sequence[Sequence[StepReport]]) -> dict[str, Any]:
    """Cycles of the first run, and of the last if constants of an earlier one were on chip, of devices with a clock."""
    first, last = (sum((step.stats for step in run), Stats()).cycles for run in (runs[0], runs[-1]))
    steady = any(step.steady for step in runs[-1])
    return (
        {"resident": steady}
        | ({"first_cycles": first} if first else {})
        | ({"steady_cycles": last} if steady and last else {})
    )


def _per_input(runs: Sequence[Sequence[StepReport]], inputs: int) -> dict[str, Any]:
    """Cycles per input of a batch: the launches of the `runs` that took the `inputs`."""
    cycles = sum((step.stats for run in runs for step in run), Stats()).cycles
    return {"cycles_per_input": cycles / inputs} if cycles else {}


def _run(
    executable: Executable, where: Where, samples: Sequence[Mapping[str, np.ndarray]], reset: bool, resident: bool
) -> tuple[list[dict[str, np.ndarray]], list[list[StepReport]], float]:
    """(outputs of each sample, their reports, seconds of all runs); with `reset` each starts from the initial state.

    With `resident` a single sample runs a second time, for the reports, unless that would change the state. Opening the
    device, which may build a simulator, is not in the seconds.
    """
    results, runs = [], []
    with (
        where.open(executable) as loaded,
        report.progress(f"running on {where.name}", len(samples)) as advance,
    ):
        start = time.perf_counter()
        for sample in samples:
            if reset:
                loaded.reset()
            results.append(loaded.run(sample))
            runs.append(loaded.reports)
            advance()
        seconds = time.perf_counter() - start
        if resident and len(samples) == 1 and not executable.states:
            loaded.run(samples[0])
            runs.append(loaded.reports)
        return results, runs, seconds


def write_npz(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an npz file atomically."""
    # numpy.savez takes names as keywords, so that a tensor called `file` would break it
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def samples_for(executable: Executable, path: str, picture: Pictures | None = None) -> Samples:
    """The samples in the file or folder `path` for a program; arrays of the size of its outputs are in `file`.

    Raises as `read_samples`.
    """
    entries = [_inputs_of(entry) for entry in executable.entries]
    return read_samples(path, entries, picture, {t.name: t.shape for t in executable.outputs})


def _inputs_of(tensors: Sequence[Tensor]) -> list[Input]:
    """Tensors as the inputs that samples are read for."""
    return [Input(t.name, t.shape, np.dtype(t.dtype)) for t in tensors]


def _by_position(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> Mapping[str, np.ndarray]:
    """The arrays, under the names of outputs where the file counts these, as `counted_arrays` says."""
    if any(name in arrays for name in names):
        return arrays
    counted = counted_arrays(arrays, len(names), "output")
    return {**arrays, **{name: arrays[key] for name, key in zip(names, counted)}} if counted else arrays


def _collect(executable: Executable, results: list[dict], stacked: bool) -> dict[str, np.ndarray]:
    names = [t.name for t in executable.outputs]
    arrays = {name: np.stack([r[name] for r in results]) if stacked else results[0][name] for name in names}
    return {"outputs": arrays[names[0]]} if len(names) == 1 else arrays


def _expected(
    executable: Executable, arrays: Mapping[str, np.ndarray], count: int | None, path: str
) -> dict[str, np.ndarray]:
    """Expected outputs in the file, by tensor name; `outputs` names the only output of a program.

    Raises `InputError` where a shape is not that of the results, or `outputs` stands for several.
    """
    tensors, inputs = {t.name: t for t in executable.outputs}, {t.name for t in executable.inputs}
    arrays = _by_position(arrays, list(tensors))
    found = {name: arrays[name] for name in tensors if name in arrays and name not in inputs}
    if "outputs" in arrays and "outputs" not in {*tensors, *inputs}:
        if len(tensors) > 1:
            names = ", ".join(f"`{name}`" for name in tensors)
            raise InputError(f"{path}: `outputs` could be any of several results; name them: {names}")
        (name,) = tensors
        found[name] = arrays["outputs"]
    for name, array in found.items():
        shape = tensors[name].shape if count is None else (count, *tensors[name].shape)
        if array.shape != shape:
            what = "outputs" if name not in arrays else name
            raise InputError(f"{path}: `{what}` has shape {array.shape}; the results have {shape}")
    return found


def _compare(
    results: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    arrays: Mapping[str, np.ndarray],
    stacked: bool,
) -> dict[str, object]:
    """Compare the results, by tensor, with the file's expected outputs and its `labels`."""
    found: dict[str, object] = {}
    if expected:
        equal = {}
        for name, array in expected.items():
            equal[name] = (results[name] == array).reshape(len(array) if stacked else 1, -1)
        found["outputs_equal"] = sum(map(all, zip(*(one.all(axis=1).tolist() for one in equal.values()))))
        found["values_equal"] = sum(int(one.sum()) for one in equal.values())
        found["values"] = sum(one.size for one in equal.values())
        found["differing"] = [name for name, one in equal.items() if not one.all()]
        found["not_compared"] = [name for name in results if name not in expected]
    if not stacked or len(results) > 1:
        return found
    (got,) = results.values()
    # a result as large as an input reconstructs it: then its largest value does not name a class
    reconstructs = any(array.shape == got.shape for name, array in arrays.items() if name not in (*results, "outputs"))
    if got.ndim == 3 and got.shape[1] == 1 and got.shape[2] > 1 and not reconstructs:
        labels = got[:, 0].argmax(axis=-1)
        found["labels"] = labels.tolist()
        known = arrays.get("labels")
        if known is not None and known.shape == labels.shape and known.dtype.kind in "iu":
            found["labels_equal"] = int((labels == known).sum())
    return found


def _print(rows: Sequence[dict], result: dict, counted: list[list[StepReport]] | None, profile: Profile) -> None:
    """The steps, of `counted` runs also the counters, the metrics if the result has them, and the summary."""
    print_run(rows, counted is not None)
    if counted is not None:
        report.table(["counter", "value"], [list(row.values()) for row in counter_rows(counted)])
    profile.say(result)
    _print_summary(result)
    say_remedy(result["remedy"])


def _print_summary(result: dict) -> None:
    n = result["inputs"]
    for note in result["notes"]:
        report.say(note)
    report.say_contract(result["contract"])
    say_float_steps(result["float32_on_host"])
    if "labels" in result:
        shown = " ".join(map(str, result["labels"][:SHOWN_LABELS]))
        report.say(f"labels: {shown}{' ...' if n > SHOWN_LABELS else ''}")
    if "labels_equal" in result:
        report.say(f"labels equal to the file's: {result['labels_equal']} of {n}")
    if "outputs_equal" in result:
        values = f"{result['values_equal']:,} of {result['values']:,} values"
        report.say(f"outputs equal to the file's: {result['outputs_equal']} of {n}, {values}")
        for key, what in (("differing", "outputs that differ"), ("not_compared", "outputs that the file lacks")):
            if result[key]:
                report.say(f"{what}: {', '.join(result[key])}")
    if "check" in result:
        report.say(result["check"]["text"])
    if result["output"]:
        report.say(f"outputs written to {result['output']}")
    if "trace" in result:
        report.say(f"timeline written to {result['trace']}{TO_PERFETTO}")
    if "resident" in result:
        report.say(_of_residents(result))
    if "cycles_per_input" in result:
        idle = -n % result["batch"]
        filled = f", {report.counted(idle, 'place')} of the last run without an input" if idle else ""
        report.say(f"{result['batch']} inputs at once: {result['cycles_per_input']:,.0f} cycles each{filled}")
    rate, where = result["seconds"] / n, f"{result['device']} ({result['config']})"
    if device_entry(result["device"]).simulated:  # these seconds say nothing about the accelerator's
        where = f"{where}: simulated in {result['seconds']:.2f} s"
        report.say(f"{report.counted(n, 'input')} on {where}")
        return
    report.say(f"{report.counted(n, 'input')} on {where}: {result['seconds']:.2f} s, {1e3 * rate:.1f} ms each")


def _of_residents(result: Mapping[str, Any]) -> str:
    """The sentence on what stays on chip."""
    if not result["resident"]:
        return "the last run found nothing on chip: it was the first, or all its constants are loaded each time"
    if "steady_cycles" not in result:
        return "runs after the first find constants on chip"
    return f"first run: {result['first_cycles']:,} cycles; steady run, constants on chip: {result['steady_cycles']:,}"


def need_network(model: str, option: str = "--check", cfg: Config | None = None) -> None:
    """Raise `UnsupportedError`, naming `option`, unless `model` is a network: only networks have golden values.

    For a configuration also a graph that Python source makes is one.
    """
    if is_network(model) or (cfg is not None and graph_in(python_value(model, cfg)) is not None):
        return
    raise UnsupportedError(f"{model}: {option} needs golden values; MODEL must be a network, {', '.join(NETWORKS)}")


def check_run(
    model: str,
    cfg: Config,
    choices: Choices,
    where: Where,
    samples: Sequence[Mapping[str, np.ndarray]],
    results: Sequence[Mapping[str, np.ndarray]],
    reset: bool = False,
) -> dict[str, object]:
    """Compare the `results` of a run on `samples` with the golden interpreter's.

    Then the network is compiled again with every tensor as an output and run on one sample, the first whose results
    differ or the first of all; its operators are compared in order. State is kept from sample to sample, unless they
    were run with a `reset` before each. Of a program that takes several at once, every result is compared with that of
    its sample alone.
    `text` of the result is a summary for people, `saturation` has for each operator how many of its values are at the
    ends of int8.
    """
    from ..compiler.network import compile_graph

    graph, chosen = read_graph(model, cfg, choices), read_target(choices.target, cfg)
    if samples:
        _need_inputs(model, [t.name for t in graph.inputs], samples[0])
    batch = choices.batch
    samples = [{t.name: np.asarray(sample[t.name], t.dtype) for t in graph.inputs} for sample in samples]
    wrong, states = _golden(graph, samples, results, reset)
    probe = wrong[0] if wrong else 0
    graph, sets, at = of_images(graph, batch), together(samples, batch), probe // batch
    with where.open(compile_graph(graph, cfg, every_value=True, mapping=choices.mapping, target=chosen)) as loaded:
        for sample in sets[:at] if graph.states and not reset else ():
            loaded.run(sample)
        found = compare(graph, sets[at], loaded.run(sets[at]), state=states[probe])
    equal = not wrong and found.difference is None
    text = f"golden interpreter ({graph.contract}): {len(samples) - len(wrong)} of {len(samples)} results equal; "
    text += f"on input {probe} " if batch == 1 else f"in the run of input {probe}, {batch} at once, "
    if found.difference is not None:
        text += f"operator {found.operators} of {len(graph.ops)} differs: {found.difference}"
    else:
        text += f"all {found.operators} operators are equal, {found.elements:,} elements"
    text += _saturated(found.saturation)
    facts: dict[str, object] = {"contract": graph.contract, "results_equal": len(samples) - len(wrong), "input": probe}
    facts |= {"operators": found.operators, "elements": found.elements, "equal": equal, "text": text}
    facts["saturation"] = [vars(one) for one in found.saturation]
    return facts | {"difference": None if found.difference is None else vars(found.difference)}


def _golden(
    graph: Graph,
    samples: Sequence[Mapping[str, np.ndarray]],
    results: Sequence[Mapping[str, np.ndarray]],
    reset: bool,
) -> tuple[list[int], list[dict[str, np.ndarray]]]:
    """(the numbers of the results that are not the golden interpreter's, the state before each sample)."""
    wrong, state, states = [], initial_state(graph), []
    for k, (sample, result) in enumerate(zip(samples, results, strict=True)):
        state = initial_state(graph) if reset else state
        states.append(dict(state))
        golden, _ = reference.run(graph, sample, state=state)
        if any(result[name].tobytes() != value.tobytes() for name, value in golden.items()):
            wrong.append(k)
    return wrong, states


def _need_inputs(model: str, names: Sequence[str], sample: Mapping[str, np.ndarray]) -> None:
    """Raise `UnsupportedError` where `sample` has not all inputs of the network."""
    if not sample.keys() >= set(names):
        raise UnsupportedError(
            f"{model}: --check needs the network's inputs, {', '.join(names)}; given are {', '.join(sample)}, of "
            "another entry of its program"
        )


def _saturated(found: Sequence[Saturation]) -> str:
    """A sentence on the operator with the most saturated int8 values; empty without any."""
    most = max(found, key=lambda one: one.share, default=None)
    if most is None or not most.share:
        return ""
    count, total = (sum(values) for values in zip(*((one.low + one.high, one.elements) for one in found)))
    return (
        f"; {count:,} of {total:,} int8 values are saturated, the most in {most.operator!r}: {most.low:,} at -128 and "
        f"{most.high:,} at 127 of {most.elements:,}"
    )
