"""sim/cliffs.py: planted cliffs are found, ready schedules and examples have none."""

import json
import runpy
from pathlib import Path

import pytest

from tilewright.cli.bench import layers as network
from tilewright.compiler import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.schedule.elementwise import elementwise
from tilewright.compiler.schedule.pool import pool
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program
from tilewright.sim.cliffs import RULES, cliffs
from tilewright.sim.timing import predict

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests/cli/planted"
EXPECTED = json.loads((PLANTED / "expected.json").read_text())
PYNQ = PRESETS["pynq_z1"]


def found(made, cfg=PYNQ):
    """The cliffs of a schedule or program."""
    program = made if isinstance(made, Program) else build(made, cfg)
    launch = program.finish()
    timing = predict(launch)
    return cliffs(launch, timing.timeline(), timing.cycles)


@pytest.mark.parametrize("name", EXPECTED)
def test_planted_cliffs_are_found(name, monkeypatch):
    monkeypatch.syspath_prepend(PLANTED)
    namespace = runpy.run_path(str(PLANTED / name))
    made = namespace["program" if "program" in namespace else "schedule"](PYNQ)
    every = found(made)
    kinds = [cliff.kind for cliff in every]
    assert EXPECTED[name]["cliff"] in kinds if EXPECTED[name]["cliff"] else not kinds
    assert all(0 < cliff.cycles and len(cliff.text) < 200 and ": " in cliff.text for cliff in every)
    assert [cliff.cycles for cliff in every] == sorted((cliff.cycles for cliff in every), reverse=True)


def test_every_rule_has_planted_programs():
    kinds = {row["cliff"] for row in EXPECTED.values()} - {None}
    assert kinds == {rule.__name__.removeprefix("_") for rule in RULES} - {"sums_of_products"}


def test_sums_that_the_alu_adds_are_a_reduction():
    p = Program(PYNQ, "parts")
    x, w, y = p.buffer("x", (512, 16)), p.buffer("w", (64, 16, 16)), p.buffer("y", (64, 16), kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=64)
    p.load(Mem.INP, 0, x, 0, x_size=512)
    p.gemm([(64, 1, 0, 0)], dst=0, reset=True)
    for k in range(8):
        p.gemm([(64, 1, 1, 0)], dst=64, src=64 * k, wgt=k, overwrite=True)
        p.alu(AluOp.ADD, [(64, 1, 1)], dst=0, src=64)
    p.store(0, y, 0, x_size=64)
    (cliff,) = found(p)
    assert cliff.kind == "reduction" and "the ALU adds 8 sums of products per result" in cliff.text


def test_one_place_for_results():
    p = Program(PYNQ, "results")
    x, w, y = p.buffer("x", (2048, 16)), p.buffer("w", (16, 16, 16)), p.buffer("y", (2048, 16), kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=2)
    for k in range(8):
        p.load(Mem.INP, 256 * (k % 2), x, 256 * k, x_size=256)
        p.gemm([(256, 1, 1, 0)], dst=0, src=256 * (k % 2), overwrite=True)
        p.gemm([(256, 1, 1, 0)], dst=0, src=256 * (k % 2), wgt=1)
        p.store(0, y, 256 * k, x_size=256)
    (cliff,) = found(p)
    assert (cliff.kind, cliff.tensor) == ("one_slot", "y") and "so that the next tile has others" in cliff.text


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", sorted({layer.shape_name for layer in network.layers()}))
@pytest.mark.slow
def test_the_layers_of_resnet18_have_none(preset, name):
    if (preset, name) == ("tiny", "C1"):
        pytest.skip("7x7 kernels do not fit the scratchpads of tiny")
    layer = next(layer for layer in network.layers() if layer.shape_name == name)
    assert found(network.program(layer, PRESETS[preset]), PRESETS[preset]) == []


READY = {
    "small convolution": lambda: conv2d(PYNQ, 1, 8, 8, 16, 16, 3, 3, pad=(1, 1, 1, 1)),
    "strided convolution": lambda: conv2d(PYNQ, 1, 33, 31, 24, 40, 3, 3, stride=(2, 2), pad=(1, 1, 1, 1)),
    "1x1": lambda: conv2d(PYNQ, 1, 14, 14, 96, 64, 1, 1),
    "depthwise": lambda: depthwise(PYNQ, 1, 28, 28, 64, 3, 3, pad=(1, 1, 1, 1)),
    "dense": lambda: dense(PYNQ, 1, 256, 128),
    "maximum": lambda: pool(PYNQ, 1, 24, 24, 32, 2, 2, stride=(2, 2)),
    "sum": lambda: elementwise(PYNQ, 1024, [("add", "y"), ("shr", 1)], dtype="int8"),
}


@pytest.mark.parametrize("name", READY)
def test_ready_schedules_have_none(name):
    assert found(READY[name]()) == []


@pytest.mark.parametrize("name", ["vector_add", "matmul_vthread", "conv2d"])
def test_examples_have_none(name):
    namespace = runpy.run_path(str(ROOT / f"examples/{name}.py"))
    for cfg in (PRESETS["vta"], PYNQ):
        assert found(namespace["schedule"](cfg), cfg) == []
