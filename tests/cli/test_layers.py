"""cli/layers.py: rows per step, totals, the device's share."""

from collections import Counter
from types import SimpleNamespace

from tilewright.cli import layers
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
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
    (row,) = layers.run_rows(runs)  # pyright: ignore[reportArgumentType]
    assert row["ms"] == 500 and row["bytes_loaded"] == 64 and row["macs"] == 5


def test_tables_add_up(capsys):
    layers.print_compiled(executable(3000, 1000))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "75.0 % of the multiply-accumulates run on the device"
    assert lines[-2].split()[:2] == ["total", "4,000"]
    assert next(line for line in lines if "flat" in line).split() == ["flat", "host", "1,000"]
    layers.print_rows([])
    assert capsys.readouterr().out == ""
