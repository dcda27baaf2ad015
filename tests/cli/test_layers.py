"""cli/layers.py: rows per step, totals, the device's share."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.cli import layers
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.device import Stats, open_device
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.loader import Loaded
from tilewright.runtime.program import Program


def executable(device_macs, host_macs):
    """Shift the accumulators, store them, and reshape the result on the host."""
    p = Program(PRESETS["tiny"], "shift")
    y = p.buffer("y", (4, 1, 4), kind="output")
    p.alu(AluOp.SHR, [(4, 1, 0)], imm=1)
    p.store(0, y, 0, x_size=4)
    tensors = [Tensor("y", (4, 1, 4), "int8"), Tensor("z", (16,), "int8", "output")]
    steps: list[LaunchStep | HostStep] = [
        LaunchStep("shift", p.finish(), {"y": "y"}, device_macs),
        HostStep("flat", "reshape", ["y"], ["z"], {"shape": [16]}, macs=host_macs),
    ]
    return Executable(p.cfg, "test", {t.name: t for t in tensors}, steps)


def test_the_share_counts_useful_work():
    assert layers.share_on_device(executable(30, 10)) == 0.75
    assert layers.share_on_device(executable(0, 10)) == 0
    assert layers.share_on_device(executable(0, 0)) is None


def test_operators_in_float32_are_said(capsys):
    found = executable(30, 10)
    layers.say_float_steps(layers.float_steps(found))
    assert capsys.readouterr().out == ""
    found.steps += [HostStep(f"top{k}", "float_softmax", ["z"], ["z"], {"axis": 0}) for k in range(9)]
    layers.say_float_steps(layers.float_steps(found))
    names = ", ".join(f"top{k}" for k in range(8))
    assert capsys.readouterr().out == f"9 operators run in float32 on the host: {names} and 1 more\n"


def test_numbers_and_casts_in_float32_are_said_and_integers_are_not():
    found = executable(30, 10)
    for name, dtype in (("f", "float32"), ("g", "float32"), ("i", "int32"), ("j", "int32")):
        found.tensors[name] = Tensor(name, (1, 4), dtype, "temp")
    stages = [["cast", {"dtype": "float32"}], ["quantize", {"scale": 0.5, "zero_point": 0}]]
    found.steps += [
        HostStep("root", "number_function", ["f"], ["g"], {"function": "sqrt"}),
        HostStep("sum", "number_binary", ["i", "i"], ["j"], {"function": "add"}),
        HostStep("to float", "cast", ["i"], ["f"], {"dtype": "float32"}),
        HostStep("widen", "cast", ["i"], ["j"], {"dtype": "int32"}),
        HostStep("boxes", "detections", ["f", "f"], ["g"], {}),
        HostStep("narrow", "chain", ["i"], ["z"], {"stages": stages}),
        HostStep("end", "dequantize", ["z"], ["f"], {"scale": 0.5, "zero_point": 0}),
    ]
    assert layers.float_steps(found) == ["root", "to float", "boxes", "narrow"]


def test_compiled_rows():
    found = executable(30, 10)
    step = found.steps[0]
    assert isinstance(step, LaunchStep)
    counts = {"instructions": len(step.launch.insn), "micro_ops": len(step.launch.uops)}
    assert min(counts.values()) > 0
    assert layers.compiled_rows(found) == [
        {"step": "shift", "where": "device", "macs": 30, **counts},
        {"step": "flat", "where": "host", "macs": 10, "instructions": 0, "micro_ops": 0},
    ]


def report(name, seconds, **counts):
    return SimpleNamespace(name=name, where="device", macs=5, stats=Stats(**counts), seconds=seconds)


def test_run_rows_have_the_mean_time():
    runs = [[report("a", 0.25, bytes_loaded=Counter(INP=64))], [report("a", 0.75, bytes_loaded=Counter(INP=64))]]
    (row,) = layers.run_rows(executable(5, 0), runs, 1e8)  # pyright: ignore[reportArgumentType]
    assert row["wall_ms"] == 500 and row["bytes_loaded"] == 64 and row["macs"] == 5
    assert "cycles" not in row and "device_ms" not in row


def test_a_device_with_a_clock_has_its_own_time():
    runs = [[report("a", 0.25, cycles=5000)]]
    (row,) = layers.run_rows(executable(5, 0), runs, 50e6)  # pyright: ignore[reportArgumentType]
    assert row["device_ms"] == 0.1 and row["wall_ms"] == 250 and "operators" not in row


def two_products():
    """Two operators, one behind the other, on the timing model."""
    p = Program(PRESETS["tiny"], "two")
    x, w, y = p.buffer("x", (8, 4)), p.buffer("w", (4, 4)), p.buffer("y", (8, 4), kind="output")
    for k, name in enumerate(("first", "second")):
        with p.origin(name, macs=64):
            p.load(Mem.WGT, 0, w, 0)
            p.load(Mem.INP, 0, x, 4 * k, x_size=4)
            p.gemm([(4, 1, 1, 0)], overwrite=True)
            p.store(0, y, 4 * k, x_size=4)
    return Executable.from_launch(p.finish())


def test_a_launch_shows_its_operators(capsys):
    program = two_products()
    with Loaded(program, open_device("timing", program.cfg)) as loaded:
        loaded.run({"x": np.zeros((8, 4), np.int8), "w": np.zeros((4, 4), np.int8)})
        rows = layers.run_rows(program, [loaded.reports], 1e8)
        counters = layers.counter_rows([loaded.reports])
    (row,) = rows
    assert [one["operator"] for one in row["operators"]] == ["first", "second", "launch"]
    assert sum(one["cycles"] for one in row["operators"]) == row["cycles"]
    assert [one["macs"] for one in row["operators"]] == [64, 64, 0]
    assert {"counter": "COMPUTE_INSNS", "value": loaded.stats.counters["COMPUTE_INSNS"]} in counters
    layers.print_run(rows, counters=True)
    lines = capsys.readouterr().out.splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith(" step"))
    words = set(" ".join(lines[: head + 1]).split())
    assert {"wait", "device", "ms", "wall", "cycles"} <= words
    assert [line.split()[0] for line in lines[head + 2 :]] == ["two", "first", "second", "launch", "total"]


def test_a_schedule_shows_its_statements():
    p = Program(PRESETS["tiny"], "one")
    y = p.buffer("y", (4, 4), kind="output")
    with p.origin("one"):
        with p.origin("1: shift[0] = 1"):
            p.alu(AluOp.SHR, [(4, 1, 0)], imm=1)
        with p.origin("2: y[0] = 1"):
            p.store(0, y, 0, x_size=4)
    program = Executable.from_launch(p.finish())
    with Loaded(program, open_device("timing", program.cfg)) as loaded:
        loaded.run({})
        (row,) = layers.run_rows(program, [loaded.reports], 1e8)
    assert [one["statement"] for one in row["statements"]] == ["1: shift[0] = 1", "2: y[0] = 1", "launch"]


def test_compiled_launches_list_their_operators(capsys):
    (row,) = layers.compiled_rows(two_products())
    assert [(one["operator"], one["macs"]) for one in row["operators"]] == [("first", 64), ("second", 64)]
    assert sum(one["instructions"] for one in row["operators"]) == row["instructions"] - 1
    layers.print_compiled(two_products())
    assert "  first" in capsys.readouterr().out


def test_tables_add_up(capsys):
    layers.print_compiled(executable(3000, 1000))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "75.0 % of the multiply-accumulates run on the device"
    assert lines[-2].split()[:2] == ["total", "4,000"]
    assert next(line for line in lines if "flat" in line).split() == ["flat", "host", "1,000"]
    layers.print_run([])
    assert capsys.readouterr().out == ""


def test_rows_are_of_the_steps_that_ran():
    steps = [SimpleNamespace(name=name, when=(0, 1)) for name in ("short", "long", "end")]
    program: Any = SimpleNamespace(steps=steps)
    for names in (["short", "end"], ["long", "end"], ["short", "long", "end"]):
        done: Any = [report(name, 0.5) for name in names]
        found = list(layers.ran(program, done))
        assert [step.name for step, _ in found] == [done.name for _, done in found] == names
    runs: Any = [[report("short", 1.0)], [report("long", 3.0)]]
    rows = layers.run_rows(program, runs, 1e8)
    assert [(row["step"], row["wall_ms"]) for row in rows] == [("long", 3000.0)]
