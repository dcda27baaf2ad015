"""sim/losses.py: bound and losses add up, and remedies save what they promise; what each statement does."""

import json
import runpy
from pathlib import Path
from typing import Any

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
from tilewright.sim.losses import explain, merged
from tilewright.sim.statements import occupancy, statements
from tilewright.sim.timing import predict

ROOT = Path(__file__).parents[2]


PLANTED = ROOT / "tests/cli/planted"


EXPECTED = json.loads((PLANTED / "expected.json").read_text())


PYNQ, TINY = PRESETS["pynq_z1"], PRESETS["tiny"]


def found(made, cfg=PYNQ):
    """The explanation of a schedule or program."""
    program = made if isinstance(made, Program) else build(made, cfg)
    launch = program.finish()
    explanation = explain(launch)
    assert explanation.cycles == predict(launch).cycles
    assert explanation.bound + sum(loss.cycles for loss in explanation.losses) == explanation.cycles
    cycles = [loss.cycles for loss in explanation.losses]
    assert cycles == sorted(cycles, reverse=True) and all(cycle > 0 for cycle in cycles)
    assert all(loss.cause and loss.remedy and len(loss.text) < 300 for loss in explanation.losses)
    return explanation


def planted(name, monkeypatch, *functions):
    """What the functions of a planted file make: the first of them that it has."""
    monkeypatch.syspath_prepend(PLANTED)
    namespace = runpy.run_path(str(PLANTED / name))
    return next(namespace[function] for function in functions if function in namespace)(PYNQ)


@pytest.mark.parametrize("name", EXPECTED)
def test_planted_mistakes_are_the_largest_loss(name, monkeypatch):
    slow = found(planted(name, monkeypatch, "program", "schedule"))
    wanted = EXPECTED[name]
    if wanted["loss"] is None:
        assert slow.warnings == []
        return
    first = slow.warnings[0]
    assert first == slow.losses[0] and first.name == wanted["loss"]
    assert first.tensor in ("", wanted["tensor"])
    saved = slow.cycles - found(planted(name, monkeypatch, "better")).cycles
    assert saved >= first.cycles / 2, "the remedy recovers half of what the loss promises, or more"


def test_sums_that_the_alu_adds_are_gemms_work():
    p = Program(PYNQ, "parts")
    x, w, y = p.buffer("x", (512, 16)), p.buffer("w", (64, 16, 16)), p.buffer("y", (64, 16), kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=64)
    p.load(Mem.INP, 0, x, 0, x_size=512)
    p.gemm([(64, 1, 0, 0)], dst=0, reset=True)
    for k in range(8):
        p.gemm([(64, 1, 1, 0)], dst=64, src=64 * k, wgt=k, overwrite=True)
        p.alu(AluOp.ADD, [(64, 1, 1)], dst=0, src=64)
    p.store(0, y, 0, x_size=64)
    (loss,) = [loss for loss in found(p).warnings if loss.name == "alu"]
    assert "the ALU adds 8 sums of products per result" in loss.cause


@pytest.mark.parametrize("entries, fits", [(256, True), (512, False)])
def test_tensors_that_are_loaded_again(entries, fits):
    p = Program(TINY)
    x, y = p.buffer("x", (entries, 4)), p.buffer("y", (8, 4), kind="output")
    for start in range(0, 1024, 128):
        p.load(Mem.INP, start % 256, x, start % entries, x_size=128)
        p.gemm([(8, 1, 1, 0)], dst=0, src=start % 256, overwrite=True)
    p.store(0, y, 0, x_size=8)
    explanation = found(p, TINY)
    assert (explanation.limit, explanation.bound) == ("loads", entries * 4 // 8)
    loss = explanation.losses[0]
    assert (loss.name, loss.tensor) == ("loaded_again", "x") and f"loaded {1024 / entries:.1f} times" in loss.cause
    assert loss.remedy.startswith("it fits on chip" if fits else "it does not fit on chip")


def chain(operators, loads):
    """Operators that store 256 entries each in the same cells of an arena, and load those of the one before `loads`
    times.
    """
    p = Program(PYNQ, "network")
    arena, w = p.buffer("arena", (512, 16), kind="temp"), p.buffer("w", (1, 16, 16))
    y = p.buffer("y", (256, 16), kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=1)
    p.gemm([(256, 1, 0, 0)], reset=True)
    p.store(0, arena, 0, x_size=256)
    for number in range(operators):
        with p.origin(f"op{number}"):
            for _ in range(loads):
                p.load(Mem.INP, 0, arena, 256 * (number % 2), x_size=256)
                p.gemm([(256, 1, 1, 0)], overwrite=True)
            p.store(0, arena, 256 * (1 - number % 2), x_size=256)
    p.store(0, y, 0, x_size=256)
    return p


def test_activations_in_the_cells_of_others_are_no_sums():
    explanation = found(chain(8, 1))
    assert not {"sums_in_dram", "loaded_again"} & {loss.name for loss in explanation.losses}
    assert explanation.bound >= (8 * 256 * 16 + 256) // 8, "what each operator loads is a part of the bound"


def test_activations_that_an_operator_loads_again():
    explanation = found(chain(4, 3))
    again = [loss for loss in explanation.losses if loss.name == "loaded_again"]
    assert {loss.path[0] for loss in again} == {f"op{number}" for number in range(4)}
    assert "it loads 8,192 of its 12,288 bytes of activations again" in again[0].cause
    assert again[0].remedy.startswith("it fits on chip")


def test_a_store_makes_its_cells_alone_new():
    p = Program(TINY)
    x, y = p.buffer("x", (64, 4), kind="temp"), p.buffer("y", (8, 4), kind="output")
    p.gemm([(64, 1, 0, 0)], reset=True)
    p.store(0, x, 0, x_size=64)
    for _ in range(8):
        p.load(Mem.INP, 0, x, 0, x_size=64)
        p.gemm([(4, 1, 1, 0)], overwrite=True)
        p.store(0, x, 56, x_size=8)
    p.store(0, y, 0, x_size=8)
    explanation = found(p, TINY)
    assert (explanation.limit, explanation.bound) == ("loads", (64 + 7 * 8) * 4 // 8)


def test_one_place_for_results():
    p = Program(PYNQ, "results")
    x, w, y = p.buffer("x", (2048, 16)), p.buffer("w", (16, 16, 16)), p.buffer("y", (2048, 16), kind="output")
    p.load(Mem.WGT, 0, w, 0, x_size=2)
    for k in range(8):
        p.load(Mem.INP, 256 * (k % 2), x, 256 * k, x_size=256)
        p.gemm([(256, 1, 1, 0)], dst=0, src=256 * (k % 2), overwrite=True)
        p.gemm([(256, 1, 1, 0)], dst=0, src=256 * (k % 2), wgt=1)
        p.store(0, y, 256 * k, x_size=256)
    explanation = found(p)
    first = explanation.warnings[0]
    assert (first.name, first.tensor) == ("no_overlap_of_stores", "y") and "vthread.x" in first.remedy
    assert (explanation.limit, explanation.bound) == ("loads", (2048 * 16 + 2 * 256) // 8)


def test_losses_of_several_operators_name_them():
    p = Program(PYNQ, "two")
    w = p.buffer("w", (2, 16, 16))
    for name in ("first", "second"):
        x, y = p.buffer(f"{name}.x", (1024, 16)), p.buffer(f"{name}.y", (1024, 16), kind="output")
        with p.origin(name):
            p.load(Mem.WGT, 0, w, 0, x_size=2)
            for k in range(4):
                p.load(Mem.INP, 0, x, 256 * k, x_size=256)
                p.gemm([(256, 1, 1, 0), (2, 0, 0, 1)], dst=256 * (k % 2), overwrite=True)
                p.store(256 * (k % 2), y, 256 * k, x_size=256)
    explanation = found(p)
    waits = [loss.path[0] for loss in explanation.losses if loss.name == "no_overlap_of_loads"]
    assert sorted(waits) == ["first", "second"]
    listed: Any = explanation.to_dict()["losses"]
    assert {loss["path"][0] for loss in listed if loss["path"]} == {"first", "second"}
    both = merged([explanation, explanation])
    assert both.cycles == 2 * explanation.cycles and len(both.losses) == 2 * len(explanation.losses)
    assert "first" in repr(explanation) and "<table>" in explanation._repr_html_()


def test_a_launch_without_losses_of_its_own():
    p = Program(TINY, "empty")
    p.gemm([(4, 1, 0, 0)], reset=True)
    assert found(p, TINY).bound == 0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", sorted({layer.shape_name for layer in network.layers()}))
@pytest.mark.slow
def test_the_layers_of_resnet18_have_no_warnings(preset, name):
    if (preset, name) == ("tiny", "C1"):
        pytest.skip("7x7 kernels do not fit the scratchpads of tiny")
    layer = next(layer for layer in network.layers() if layer.shape_name == name)
    assert found(network.program(layer, PRESETS[preset]), PRESETS[preset]).warnings == []


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
def test_ready_schedules_have_no_warnings(name):
    assert found(READY[name]()).warnings == []


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
    assert list(every) == ["load", "product", "sum", "store", "launch"]


def test_transfers_of_a_statement():
    every = found_in(program())
    (loads,), (stores,) = every["load"].moved(store=False), every["store"].moved(store=True)
    assert (loads.buffer, loads.mem, loads.count, loads.rows) == ("x", Mem.INP, 4, 16)
    assert (loads.nbytes, stores.nbytes, stores.rows) == (4 * 8 * 4, 4 * 32, 4)
    assert every["load"].moved(store=True) == []


def test_used_entries_are_counted():
    used = occupancy(program().finish())
    assert used["INP"] == (16, TINY.inp_depth) and used["ACC"] == (16, TINY.acc_depth)
    assert used["WGT"] == (1, TINY.wgt_depth) and "PAR" not in used
    p = Program(TINY)
    p.gemm_uops(np.array([(3, 0, 0), (5, 0, 0)]), reset=True)
    assert occupancy(p.finish()) == {"UOP": (2, TINY.uop_depth), "ACC": (2, TINY.acc_depth)}
