"""The real command in this process, and small programs for it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

# y = x + x over 8 entries, as 32-bit accumulators in and the low 8 bits out
DOUBLE = """
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program


def double(cfg):
    p = Program(cfg, "double")
    x = p.buffer("x", (8, cfg.batch, cfg.block_out), 32)
    y = p.buffer("y", (8, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=8)
    p.alu(AluOp.ADD, [(8, 1, 1)])
    p.store(0, y, 0, x_size=8)
    return p
"""


@dataclass
class Outcome:
    """Exit status and what was printed."""

    status: int
    out: str
    err: str


@pytest.fixture
def tilewright(capsys):
    """Runs the command in this process: `tilewright("verb", ...)` gives an `Outcome`."""
    from tilewright.cli.main import run

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = run([str(a) for a in arguments])
        return Outcome(status, *capsys.readouterr())

    return call


@pytest.fixture
def printed(tilewright):
    """The JSON document of a command that ends well; its first words may be one string."""

    def call(words: object, *arguments: object) -> Any:
        done = tilewright(*str(words).split(), *arguments, "--json")
        assert done.status == 0, done.err
        return json.loads(done.out)

    return call


@pytest.fixture
def refused(tilewright):
    """Asserts that a command ends with `status` and one line that has `text`; its first words may be one string."""

    def check(status: int, text: str, words: str, *arguments: object) -> None:
        done = tilewright(*words.split(), *arguments)
        assert (done.status, text in done.err, done.err.count("\n")) == (status, True, 1), done

    return check


@pytest.fixture
def double_py(tmp_path) -> Path:
    """Python source whose `double` records a program of any configuration."""
    path = tmp_path / "double.py"
    path.write_text(DOUBLE)
    return path


@pytest.fixture
def double_tw(double_py, tilewright, tmp_path) -> Path:
    """That program, compiled for pynq_z1."""
    path = tmp_path / "double.tw"
    done = tilewright("compile", f"{double_py}:double", "-o", path)
    assert done.status == 0, done.err
    return path


@pytest.fixture
def slow_to_open(monkeypatch):
    """The clock stands still but for 1,000 s that opening the behavioural model takes."""
    import time

    from tilewright.sim.model.device import ModelDevice

    now, opened = [0.0], ModelDevice.__init__

    def slow(self, *arguments, **options):
        now[0] += 1000
        self.build_seconds = 1000
        opened(self, *arguments, **options)

    monkeypatch.setattr(ModelDevice, "__init__", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])


@pytest.fixture
def either():
    """An executable that runs the launch `one`, or `two` from `position` 8 on, which does the work of `one` twice."""
    from tilewright.hw.config import PRESETS
    from tilewright.hw.isa import Mem
    from tilewright.runtime.executable import Executable, Tensor
    from tilewright.runtime.program import Program
    from tilewright.runtime.steps import When

    steps, tensors = [], {"position": Tensor("position", (1,), "int32", "input")}
    for times, name in ((1, "one"), (2, "two")):
        program = Program("tiny", name)
        x, y = program.buffer("x", (4, 1, 4), 32), program.buffer("y", (4, 1, 4), kind="output")
        for _ in range(times):
            program.load(Mem.ACC, 0, x, 0, x_size=4)
            program.store(0, y, 0, x_size=4)
        alone = Executable.from_launch(program.finish())
        (step,) = alone.launches
        step.when = When("position", 8 * times - 8, 8 * times)
        steps.append(step)
        tensors |= alone.tensors
    return Executable(PRESETS["tiny"], "either", tensors, steps)
