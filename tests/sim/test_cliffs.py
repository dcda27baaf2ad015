"""sim/cliffs.py: every rule finds planted mistakes, and only those; what each statement does."""

import json
import runpy
from pathlib import Path

import numpy as np
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
from tilewright.sim.cliffs import RULES, Transfers, cliffs, occupancy, statements
from tilewright.sim.timing import predict

ROOT = Path(__file__).parents[2]


PLANTED = ROOT / "tests/cli/planted"


EXPECTED = json.loads((PLANTED / "expected.json").read_text())


PYNQ, TINY = PRESETS["pynq_z1"], PRESETS["tiny"]


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


@pytest.mark.parametrize("entries, again", [(256, True), (512, False)])
def test_a_tensor_may_be_loaded_again_if_it_does_not_fit(entries, again):
    p = Program(TINY)
    x, y = p.buffer("x", (entries, 4)), p.buffer("y", (8, 4), kind="output")
    for start in range(0, 1024, 128):
        p.load(Mem.INP, start % 256, x, start % entries, x_size=128)
        p.gemm([(8, 1, 1, 0)], dst=0, src=start % 256, overwrite=True)
    p.store(0, y, 0, x_size=8)
    assert ("loaded_again" in {cliff.kind for cliff in found(p, TINY)}) == again


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


def example(name, cfg=PYNQ):
    """The schedule of an example."""
    return runpy.run_path(str(ROOT / f"examples/{name}.py"))["schedule"](cfg)


READY = {
    **{name: lambda name=name: example(name) for name in ("vector_add", "matmul_vthread", "conv2d")},
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


def found_in(program):
    """The statements of a program, by name, on the timing model."""
    launch = program.finish()
    timing = predict(launch)
    every = statements(launch, timing.timeline())
    assert sum(statement.cycles for statement in every) == timing.timeline().end.max()
    return {statement.name: statement for statement in every}


def program():
    """A loop over two places: loads of rows, a product, a sum with itself, stores."""
    p = Program(TINY, "facts")
    x, y = p.buffer("x", (64, 4)), p.buffer("y", (32, 4), kind="output")
    for k in range(4):
        with p.origin("load"):
            p.load(Mem.INP, 8 * (k % 2), x, 16 * k, y_size=4, x_size=2, x_stride=4)
        with p.origin("product"):
            p.gemm([(8, 1, 1, 0)], dst=8, src=8 * (k % 2), overwrite=True)
            p.gemm([(8, 1, 1, 0), (2, 0, 0, 0)], dst=8, src=8 * (k % 2))
        with p.origin("sum"):
            p.alu(AluOp.ADD, [(8, 1, 1)], dst=0, src=8)
            p.alu(AluOp.MUL, [(8, 1, 0)], dst=0, src=8)
            p.alu(AluOp.SHR, [(8, 1, 0)], dst=0, imm=1)
        with p.origin("store"):
            p.store(0, y, 8 * (k % 2), x_size=8)
    return p


def test_work_is_counted_by_statement():
    every = found_in(program())
    product, total = every["product"], every["sum"]
    assert (product.loops, product.issues) == (8, 4 * (8 + 16))
    assert (product.initial, product.initial_issues) == (4, 32)
    assert (total.loops, total.issues, total.added, total.spread) == (12, 96, 32, 32)
    assert product.compute_cycles >= 64 and every["load"].compute_cycles == 0
    assert list(every) == ["load", "product", "sum", "store", "launch"]


def test_transfers_of_a_statement():
    every = found_in(program())
    (loads,), (stores,) = every["load"].moved(store=False), every["store"].moved(store=True)
    assert (loads.buffer, loads.mem, loads.count, loads.rows) == ("x", Mem.INP, 4, 16)
    assert loads.nbytes == loads.distinct_bytes(4) == 4 * 8 * 4
    assert loads.overwrites() == 2  # the third and the fourth tile replace the first two
    assert (stores.nbytes, stores.distinct_bytes(4), stores.rows) == (4 * 32, 2 * 32, 4)
    assert every["load"].moved(store=True) == [] and stores.busy > 0


def test_overwritten_and_used_entries_are_counted():
    same = Transfers("x", Mem.INP, [0, 0], [7, 7], [(0, 1, 32, 32)] * 2)  # a tile that is loaded again replaces nothing
    assert same.overwrites() == 0 and same.distinct_bytes(4) == 32 and same.nbytes == 64
    used = occupancy(program().finish())
    assert used["INP"] == (16, TINY.inp_depth) and used["ACC"] == (16, TINY.acc_depth)
    assert used["WGT"] == (1, TINY.wgt_depth) and "PAR" not in used
    p = Program(TINY)
    p.gemm_uops(np.array([(3, 0, 0), (5, 0, 0)]), reset=True)
    assert occupancy(p.finish()) == {"UOP": (2, TINY.uop_depth), "ACC": (2, TINY.acc_depth)}
