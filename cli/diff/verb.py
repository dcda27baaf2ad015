"""`tilewright diff`: the command line of compare.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...hw.errors import FileError, InputError, UnsupportedError
from ...runtime.registry import device_entry
from .. import report
from ..options import config_option, json_option
from ..profile.files import Profile, profile_option
from ..where import Where, where_options

if TYPE_CHECKING:
    import numpy as np

    from .compare import Result

COLUMNS = ["network", "operators taken", "partitions", "outputs that differ", "by at most", "labels LiteRT"]
COLUMNS += ["labels", "CPU ms", "A9 ms", "A9 + accelerator ms", "accelerator ms"]


@click.command()
@click.argument("networks", nargs=-1, required=True, metavar="NET.tflite...")
@click.option(
    "--inputs",
    multiple=True,
    metavar="X.npz",
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
    from ...hw.config import load_config
    from .compare import Setup, compared

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
            arrays = _arrays(inputs[k]) if inputs else None
            known = _labels(labels[k]) if labels else None
            results.append(compared(path, setup, arrays, known, inputs[k] if inputs else path))
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
    """Raise `UnsupportedError` for anything but a .tflite file, and `FileError` where there is none."""
    from ...compiler.frontend.source import kind_of

    if not path.endswith(".tflite") and kind_of(path) != ".tflite":
        raise UnsupportedError(f"{path}: diff runs TFLite's interpreter; give .tflite files")
    if not Path(path).exists():
        raise FileError(f"{path}: no such file")


def _arrays(path: str) -> dict[str, np.ndarray]:
    from ...hw.foreign import read_npz

    return dict(read_npz(path))


def _labels(path: str) -> np.ndarray:
    arrays = _arrays(path)
    if "labels" not in arrays:
        raise FileError(f"{path}: holds {', '.join(arrays) or 'nothing'}, expected `labels`")
    return arrays["labels"]


def _print(results: list[Result], where: Where) -> None:
    """A line per network, and below them the operators whose results differ."""
    report.table(COLUMNS, [_row(result) for result in results])
    for result in results:
        wrong = [layer for layer in result.layers if layer.differing]
        if wrong:
            report.say(f"{_name(result)}: operators whose results differ, in order")
            rows = [[w.operator, _place(w.accelerated), w.differing, w.values, w.largest] for w in wrong]
            report.table(["operator", "where", "values that differ", "of", "largest"], rows)
    report.say_contract("double")
    report.say("dense layers round once, as LiteRT's do")
    at = f"{where.clock_hz / 1e6:g} MHz"
    counted = f"simulated, if it closes at {at}" if device_entry(where.name).simulated else f"counted, at {at}"
    report.say(
        f"CPU: LiteRT on one thread of this machine, measured; A9: a Cortex-A9 at 650 MHz, modelled; accelerator: "
        f"{where.name}, {counted}"
    )


def _name(result: Result) -> str:
    return Path(result.network).stem


def _place(accelerated: bool) -> str:
    return "accelerator" if accelerated else "LiteRT"


def _row(result: Result) -> list[object]:
    labels = [f"{n} of {result.labelled}" if result.labelled else "" for n in result.labels]
    times = [result.cpu_ms, result.alone_ms, result.together_ms, result.accelerator_ms]
    taken = f"{result.taken} of {result.operators}"
    differing = f"{result.outputs.differing:,} of {result.outputs.values:,}"
    return [_name(result), taken, result.partitions, differing, result.outputs.largest, *labels, *map(_ms, times)]


def _ms(time: float | None) -> str:
    return "?" if time is None else f"{time:.3f}"
