"""Compares compiled networks with those of tests/data/frozen.json: their bytes, cycles, and operators on the host.

`python tools/frozen.py` compiles every network for the configurations below, without any cache, and prints a line for
each program that is not the one in the file. The exit status is 1 where cycles rose, an operator went to the host,
a program changed that `--accept` does not name, or a network could not be compiled. Networks that lie beside the
repository, in ../shared, are skipped where that is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import re
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

import tilewright as tw
from tilewright.compiler.network import launch_cycles
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import TilewrightError
from tilewright.runtime.steps import HostStep

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
FILE = ROOT / "tests" / "data" / "frozen.json"

_PLUS = PRESETS["pynq_z1_plus"]
CONFIGS: dict[str, Config] = {
    **{name: PRESETS[name] for name in ("tiny", "vta", "pynq_z1", "pynq_z1_plus", "tiny_two", "pynq_z1_two")},
    "two_ports": _PLUS.replace(name="two_ports", load_ports=2),
    "batch_4": _PLUS.replace(name="batch_4", batch=4),  # rows of an input entry
    "images_4": PRESETS["pynq_z1"],  # of a program, as --batch 4 has it
}
IMAGES = {"images_4": 4}
# files below ROOT or SHARED, or functions below
NETWORKS: dict[str, str] = {
    "digits": "examples/digits/digits.onnx",
    "mobilenetv2": "mobilenetv2(224, 1.0)",
    "mobilenetv2_small": "mobilenetv2(32, 0.25)",
    "resnet18": "resnet18(224, 64)",
    "resnet18_small": "resnet18(32, 16)",
    "resnet8_units": "units(50)",
    "ad01": "../shared/models/ad01_int8.tflite",
    "kws": "../shared/models/kws_int8.tflite",
    "resnet8": "../shared/models/resnet8_int8.tflite",
    "vww": "../shared/models/vww_int8.tflite",
    "stories260k": "../shared/models/stories260K/stories260K.bin",
    "dcgan": "../shared/networks/secda_dcgan_gen.tflite",
    "detection": "../shared/networks/R_mcunet_detection.tflite",
    "dtln": "../shared/networks/R_tflm_dtln.tflite",
    "faces": "../shared/networks/efinix_face_detection.tflite",
    "keyword": "../shared/networks/R_tflm_keyword_scrambled_8bit.tflite",
    "mcunet_vww": "../shared/networks/mcunet_vww.tflite",
    "mnist_lstm": "../shared/networks/R_tflm_mnist_lstm_int8.tflite",
    "mobilenetv1": "../shared/networks/R_coral_mobilenetv1_uint8_025_128.tflite",
    "movenet": "../shared/networks/R_coral_movenet_lightning.tflite",
    "vad": "../shared/networks/R_esphome_v2_vad.tflite",
    "microllama1": "../shared/deeploy/microLlama1/network.onnx",
    "microllama16": "../shared/deeploy/microLlama16/network.onnx",
    "microllama16_parallel": "../shared/deeploy/microLlama16_parallel/network.onnx",
    "microllama64": "../shared/deeploy/microLlama64/network.onnx",
}
_FOUR = "tiny vta pynq_z1 pynq_z1_plus"
# the long ones first, so that processes end together; MobileNetV2 and movenet take a minute each for `tiny`
CASES: dict[str, str] = {
    "stories260k": _FOUR,
    "mobilenetv2": "vta pynq_z1 pynq_z1_plus two_ports",
    "movenet": "vta pynq_z1 pynq_z1_plus",
    "mcunet_vww": "vta pynq_z1 pynq_z1_plus",
    "faces": "vta pynq_z1 pynq_z1_plus",
    "detection": "pynq_z1 pynq_z1_plus",
    "mobilenetv1": _FOUR,
    "dcgan": _FOUR,
    "vww": _FOUR,
    "resnet18": "vta pynq_z1 pynq_z1_plus two_ports",
    "microllama1": f"{_FOUR} two_ports batch_4",
    "microllama16": _FOUR,
    "microllama16_parallel": _FOUR,
    "microllama64": _FOUR,
    "keyword": _FOUR,
    "vad": _FOUR,
    "resnet8": f"{_FOUR} two_ports images_4",
    "kws": f"{_FOUR} two_ports batch_4 images_4",
    "ad01": f"{_FOUR} batch_4",
    "dtln": _FOUR,
    "mnist_lstm": _FOUR,
    "resnet8_units": "tiny_two pynq_z1_two",
    "mobilenetv2_small": f"{_FOUR} images_4",
    "resnet18_small": "tiny batch_4",
    "digits": f"{_FOUR} two_ports batch_4 images_4",
}
QUICK = re.compile(r"digits/|(resnet18_small|microllama1)/tiny|kws/(vta|two_ports)|(ad01|mnist_lstm)/pynq_z1$")


@dataclass(frozen=True)
class Row:
    """A program: the digest of its file, the cycles of all its launches, and how often the host runs an operator."""

    digest: str
    cycles: int
    host: dict[str, int]


def names() -> list[str]:
    """The programs, `NETWORK/CONFIGURATION`."""
    return [f"{network}/{config}" for network, configs in CASES.items() for config in configs.split()]


def missing(name: str) -> bool:
    """Whether the program's network lies outside the repository, and is not there."""
    source = NETWORKS[name.partition("/")[0]]
    return source.startswith("..") and not (ROOT / source).is_file()


def measure(name: str) -> Row:
    """Compile the program now; caches lie in `$XDG_CACHE_HOME`."""
    network, _, config = name.partition("/")
    executable = _compiled(NETWORKS[network], network, config)
    host = Counter(op for step in executable.steps if isinstance(step, HostStep) for op in _operators(step))
    digest = hashlib.sha256(executable.to_bytes()).hexdigest()
    return Row(digest, launch_cycles(executable), dict(sorted(host.items())))


def _operators(step: HostStep) -> list[str]:
    """The operators that a step computes: a chain does the work of several."""
    return [stage[0] for stage in step.attrs["stages"]] if step.op == "chain" else [step.op]


def _compiled(source: str, network: str, config: str) -> tw.Executable:
    """The executable of a file, or of the network that a function of the examples or the benches makes."""
    cfg, batch = CONFIGS[config], IMAGES.get(config, 1)
    made = re.fullmatch(r"(\w+)\((.*)\)", source)
    if made is None:
        return tw.compile(ROOT / source, cfg, batch=batch)
    function, arguments = made[1], [float(text) if "." in text else int(text) for text in made[2].split(", ")]
    if function == "units":
        return _units(str(arguments[0]), cfg)
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{network}.onnx")
        onnx.save(getattr(_example(function), function)(*arguments), path)
        return tw.compile(path, cfg, batch=batch)


def _example(name: str) -> ModuleType:
    """The script that makes the network of examples/NAME."""
    spec = importlib.util.spec_from_file_location(f"make_{name}", ROOT / "examples" / name / "make_model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _units(share: str, cfg: Config) -> tw.Executable:
    """A ResNet-8 of which both compute units have `share` per cent of the channels."""
    from tilewright.cli.bench import two_units as units

    graph, split = units.point(share, units.WORKLOADS["resnet8-units"], cfg)
    widths = {op.name: len(op.weight) for op in graph.layers}
    layers = {
        name: {"gemm": tuple(range(widths[name] - last)), "ternary": tuple(range(widths[name] - last, widths[name]))}
        for name, last in split.items()
        if last
    }
    return tw.compile(graph, cfg, mapping={"version": 1, "layers": layers})


def measured(wanted: Sequence[str], jobs: int) -> Iterator[tuple[str, Row | TilewrightError]]:
    """Every program, or the error of its compilation, in the order of `wanted`; in so many processes."""
    # nothing that was compiled before
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": folder}):
        if jobs == 1 or len(wanted) < 2:
            yield from zip(wanted, map(_tried, wanted))
            return
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            yield from zip(wanted, pool.map(_tried, wanted))


def _tried(name: str) -> Row | TilewrightError:
    try:
        return measure(name)
    except TilewrightError as exc:
        return exc


def read(path: Path) -> tuple[str, dict[str, Row]]:
    """(The version of zlib that packed the programs, their rows by name)."""
    values = json.loads(path.read_text())
    return values["zlib"], {name: Row(**row) for name, row in values["programs"].items()}


def write(path: Path, rows: dict[str, Row]) -> None:
    """Write the file, a line for each program."""
    lines = [f"{json.dumps(name)}: {json.dumps(vars(rows[name]))}" for name in names() if name in rows]
    path.write_text(f'{{"zlib": "{zlib.ZLIB_RUNTIME_VERSION}", "programs": {{\n' + ",\n".join(lines) + "\n}}\n")


@dataclass(frozen=True)
class Difference:
    """A difference from the file; `worse` means more cycles, or one operator more on the host."""

    text: str
    worse: bool


def difference(before: Row | None, now: Row | TilewrightError) -> Difference | None:
    """The difference between two rows of a program, None if they are equal."""
    if isinstance(now, TilewrightError):
        return Difference(f"is not compiled: {now}", True)
    if before is None:
        return Difference(f"is not in the file: {now.cycles:,} cycles; --update adds it", False)
    if before == now:
        return None
    parts = [] if before.digest == now.digest else [f"digest {before.digest[:12]} -> {now.digest[:12]}"]
    if before.cycles != now.cycles:
        change = now.cycles - before.cycles
        share = f", {100 * change / before.cycles:+.2f} %" if before.cycles else ""
        parts.append(f"cycles {before.cycles:,} -> {now.cycles:,} ({change:+,}{share})")
    counts = {op: (before.host.get(op, 0), now.host.get(op, 0)) for op in sorted({*before.host, *now.host})}
    for op, (old, new) in counts.items():
        if old != new:
            parts.append(f"{op} {'goes to' if new > old else 'leaves'} the host, {old} -> {new} times")
    worse = now.cycles > before.cycles or any(new > old for old, new in counts.values())
    return Difference("; ".join(parts), worse)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, with `--update` write the file; the exit status."""
    parser = argparse.ArgumentParser(description="Compare compiled networks with those of tests/data/frozen.json.")
    parser.add_argument("-k", metavar="PATTERN", default="", help="only programs whose names match, as kws/ or /vta$")
    parser.add_argument("--quick", action="store_true", help="only those that take less than a minute together")
    parser.add_argument("--accept", metavar="PATTERN", help="programs whose bytes may change, their cycles not rise")
    parser.add_argument("--update", action="store_true", help="write what was found into the file")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the names of the programs, and compile none")
    options = parser.parse_args(arguments)
    known = names()
    chosen = [name for name in known if re.search(options.k, name) and (not options.quick or QUICK.search(name))]
    if not chosen:
        parser.error(f"-k {options.k}: no program has such a name; --list prints them")
    if options.list:
        print(*chosen, sep="\n")
        return 0
    packed, rows = read(FILE) if FILE.exists() else (zlib.ZLIB_RUNTIME_VERSION, {})
    wanted = [name for name in chosen if not missing(name)]
    found, changed, refused = {}, 0, 0
    for name, row in measured(wanted, options.jobs):
        what = difference(rows.get(name), row)
        if isinstance(row, Row):
            found[name] = row
        if what is None:
            continue
        changed += 1
        accepted = options.update or (options.accept is not None and re.search(options.accept, name))
        refused += what.worse or not accepted
        print(f"{name:30} {what.text}", flush=True)
    gone = [name for name in rows if name not in known]
    for name in gone:
        print(f"{name:30} is in the file, and no case any more; --update removes it")
    _say(chosen, wanted, rows, found, changed, packed)
    if options.update:
        write(FILE, {name: row for name, row in (rows | found).items() if name in known})
        gone = []
    return int(bool(refused or gone))


def _say(
    chosen: Sequence[str],
    wanted: Sequence[str],
    rows: dict[str, Row],
    found: dict[str, Row],
    changed: int,
    packed: str,
) -> None:
    """Print the sums and the skipped programs."""
    both = [name for name in found if name in rows]
    cycles = sum(rows[name].cycles for name in both), sum(found[name].cycles for name in both)
    total = f"{cycles[0]:,} cycles before, {cycles[1]:,} now"
    print(f"{len(wanted)} programs, {changed} differ; {total}")
    if skipped := len(chosen) - len(wanted):
        print(f"skipped: {skipped} programs, whose networks are not in {SHARED}")
    if changed and packed != zlib.ZLIB_RUNTIME_VERSION:
        print(f"the file's programs were packed by zlib {packed}, these by {zlib.ZLIB_RUNTIME_VERSION}: digests differ")


if __name__ == "__main__":
    sys.exit(main())
