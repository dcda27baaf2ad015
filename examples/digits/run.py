"""Classify the held-out handwritten digits on the behavioural model, and check every value.

    make sim

compiles digits.onnx, runs it image by image, and compares the accelerator's int32 accumulators and the logits with
the numpy reference, the labels with onnxruntime's. The exit status is 0 only if all of them are equal.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.cli import report
from tilewright.cli.app import PIPE_STATUS
from tilewright.cli.layers import share_on_device
from tilewright.cli.verify import verify_executable
from tilewright.compiler.cost import CLOCK
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph import Graph, reference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import load_config
from tilewright.hw.errors import TilewrightError
from tilewright.hw.rounding import CONTRACTS
from tilewright.runtime.device import Device, Stats, open_device
from tilewright.runtime.executable import Executable, LaunchStep
from tilewright.runtime.loader import Loaded, StepReport
from tilewright.sim.timing import predict

HERE = Path(__file__).resolve().parent
MODEL, INPUTS = HERE / "digits.onnx", HERE / "inputs.npz"
NAMES = {"model": "behavioural model", "rtl": "circuit, simulated by Verilator"}
COLUMNS = [
    "layer",
    "where",
    "MACs",
    "instructions",
    "micro-ops",
    "bytes loaded",
    "bytes stored",
    "cycles",
    "device us",
    "simulator ms",
    "host ms",
]


@dataclass
class Comparison:
    """The result of a comparison: `equal` of `total` values."""

    what: str
    equal: int
    total: int
    note: str = ""

    @property
    def holds(self) -> bool:
        """True if all are equal."""
        return self.equal == self.total

    @staticmethod
    def of(what: str, got: np.ndarray, expected: np.ndarray, note: str = "") -> Comparison:
        """Bit by bit: two float values are equal only if their bytes are."""
        same = got.shape == expected.shape and got.dtype == expected.dtype
        if not same:
            return Comparison(what, 0, expected.size, f"{got.dtype} {got.shape}, expected {expected.dtype}")
        differ = (got.view(f"u{got.itemsize}") != expected.view(f"u{got.itemsize}")).sum()
        return Comparison(what, expected.size - int(differ), expected.size, note)


def run_on_device(
    executable: Executable, images: np.ndarray, device: Device
) -> tuple[dict[str, np.ndarray], list[list[StepReport]]]:
    """(outputs by name, all images stacked; the steps' reports per image)."""
    (name,) = (t.name for t in executable.inputs)
    results, runs = [], []
    with Loaded(executable, device) as loaded, report.progress("running", len(images)) as advance:
        for image in images:
            results.append(loaded.run({name: image}))
            runs.append(loaded.reports)
            advance()
    return {key: np.concatenate([r[key] for r in results]) for key in results[0]}, runs


def onnxruntime_logits(images: np.ndarray) -> np.ndarray:
    """Logits of onnxruntime by the definition of QDQ, without fusing: fused kernels differ between CPUs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(None, {"image": image})[0]) for image in images])


def predicted_cycles(executable: Executable) -> list[int]:
    """Cycles of each step by the timing model; 0 for steps of the host."""
    return [predict(step.launch).cycles if isinstance(step, LaunchStep) else 0 for step in executable.steps]


def layer_rows(graph: Graph, executable: Executable, runs: Sequence[Sequence[StepReport]]) -> list[list[object]]:
    """Per operator of the graph: where it ran, its counts for one image, cycles, and milliseconds.

    The device's follow from cycles; those of simulator and host are the mean of what this machine took.
    """
    predicted = predicted_cycles(executable)
    owner: dict[str, str] = {}  # a layer's host steps are named `layer.suffix`
    for op in graph.ops:
        owner |= {r.name: op.name for r in runs[0] if r.name == op.name or r.name.rpartition(".")[0] == op.name}
    rows = []
    for op in graph.ops:
        steps = [k for k, r in enumerate(runs[0]) if owner[r.name] == op.name]
        device = [k for k in steps if runs[0][k].where == "device"]
        counts = sum((runs[0][k].stats for k in steps), Stats()).to_dict()
        ms = [1e3 * float(np.mean([sum(r[k].seconds for k in part) for r in runs])) for part in (device, steps)]
        cycles = sum(runs[0][k].stats.cycles or predicted[k] for k in steps)
        row: list[object] = [op.name, "device" if device else "host", op.macs]
        row += [counts[key] for key in ("instructions", "micro_ops", "bytes_loaded", "bytes_stored")]
        rows.append([*row, cycles, 1e6 * cycles / CLOCK, ms[0], ms[1] - ms[0]])
    return rows


def compare(graph: Graph, outputs: dict[str, np.ndarray], images: np.ndarray) -> list[Comparison]:
    """The device's accumulators and logits against the reference, the labels against onnxruntime's."""
    (logits,) = (t.name for t in graph.outputs)
    expected, accumulators = reference.run(graph, {graph.inputs[0].name: images[:, 0]})
    found = [Comparison.of(f"int32 accumulators of {n}", outputs[f"{n}.acc"], acc) for n, acc in accumulators.items()]
    found.append(Comparison.of("logits, byte for byte", outputs[logits], expected[logits]))
    theirs = onnxruntime_logits(images)
    steps = np.rint(np.abs(outputs[logits] - theirs) / graph.layers[-1].output.scale)
    note = f"{np.count_nonzero(steps):,} of {steps.size:,} logits differ, by {steps.max():.0f} step at most"
    return [*found, Comparison.of("labels, against onnxruntime", outputs[logits].argmax(1), theirs.argmax(1), note)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, check, print, and return the exit status."""
    parser = argparse.ArgumentParser(description="Classify handwritten digits on the behavioural model.")
    parser.add_argument("--config", default="pynq_z1", help="preset, VTA string or JSON file (default: %(default)s)")
    parser.add_argument("--contract", choices=CONTRACTS, help="rounding (default: that of the format)")
    parser.add_argument("--on", dest="device", default="model", choices=NAMES, help="default: %(default)s")
    parser.add_argument("--images", type=int, metavar="N", help="the first N of the held-out images only")
    options = parser.parse_args(arguments)
    try:
        status = demonstrate(options.config, options.contract, options.images, options.device)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of the output closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_STATUS
    except TilewrightError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return exc.exit_code


def demonstrate(config: str, contract: str | None, count: int | None, device: str) -> int:
    """Compile, verify, run and compare; returns 0 if all values are equal."""
    cfg = load_config(config)
    opened, start = report.opened(open_device(device, cfg)), time.perf_counter()
    with np.load(INPUTS) as data:
        images, labels = data["inputs"][:count], data["labels"][:count]
    with report.progress(f"compiling {MODEL.name} for {cfg.name}"):
        graph = import_model(MODEL, contract)
        executable = compile_graph(graph, cfg, accumulators=True)
        launches = verify_executable(executable)
    compiled = time.perf_counter()
    outputs, runs = run_on_device(executable, images, opened)
    ran = time.perf_counter()
    checks = compare(graph, outputs, images)
    end = time.perf_counter()

    print(f"{MODEL.name} on the {NAMES[device]}, configuration {cfg.name}, rounding contract `{graph.contract}`\n")
    rows = layer_rows(graph, executable, runs)
    total = ["one image", "", *(sum(column) for column in zip(*(row[2:] for row in rows)))]
    report.table(COLUMNS, rows, total)
    counted = "the circuit" if device == "rtl" else "the timing model"
    clock = f"if the circuit closes at {CLOCK / 1e6:.0f} MHz"
    print(f"\ncycles: by {counted}; device us: {clock}; simulator and host ms: measured on this machine")
    alone = sum(predicted_cycles(compile_graph(graph, cfg)))
    print(f"without accumulators to compare, an image takes {alone:,} cycles, {1e6 * alone / CLOCK:.2f} us {clock}")
    share = share_on_device(executable) or 0.0
    print(f"{100 * share:.1f} % of the multiply-accumulates ran on the device", end="; ")
    print(f"{len(launches)} programs proved free of deadlocks and races\n")
    for check in checks:
        verdict = "equal" if check.holds else "WRONG"
        note = f"   ({check.note})" if check.note else ""
        print(f"{check.what:30} {check.equal:>9,} of {check.total:>9,} {verdict}{note}")
    right = int((outputs[graph.outputs[0].name].argmax(1) == labels).sum())
    print(f"\naccuracy {100 * right / len(labels):.2f} %: {right} of {len(labels)} held-out digits, never trained on")
    print(f"time     {end - start:.1f} s: compile {compiled - start:.1f}, run {ran - compiled:.1f}", end=" ")
    print(f"({1e3 * (ran - compiled) / len(images):.1f} ms an image), check {end - ran:.1f}")
    return 0 if all(check.holds for check in checks) and share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
