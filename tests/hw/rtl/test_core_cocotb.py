"""sim/bench.py: the core through cocotbext-axi, with random stalls on every channel."""

import os
import re
from pathlib import Path

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, UnsupportedError
from tilewright.sim.bench import pauses, run_tests
from tilewright.sim.rtl import verilator

pytest.importorskip("amaranth")
pytest.importorskip("cocotbext.axi")

PAGE = Path(__file__).parents[3] / "docs" / "microarchitecture.md"
FAILING = """
import cocotb
import numpy as np
from tilewright.hw.config import PRESETS
from tilewright.sim.bench import Bench

@cocotb.test()
async def fails(dut):
    await Bench(dut, PRESETS["tiny"], size=8).run(np.zeros(9, np.uint8), 0, 1)
"""


@pytest.mark.circuit
def test_the_core_runs_programs_through_a_foreign_axi(tmp_path, monkeypatch, capfd):
    try:
        verilator.need_tools("g++", "make", "perl")
    except UnsupportedError as exc:
        pytest.skip(str(exc))
    for folder in (Path(__file__).parent, tmp_path):
        monkeypatch.syspath_prepend(folder)
    before = dict(os.environ)
    (block,) = re.findall(r"```python\n(import cocotb\n.*?)```", PAGE.read_text(), re.S)
    (tmp_path / "my_bench.py").write_text(block)
    assert run_tests(PRESETS["tiny"], "cocotb_core,my_bench", {"CORE_SEEDS": "6"}) == 4
    assert dict(os.environ) == before
    (tmp_path / "failing_bench.py").write_text(FAILING)
    with pytest.raises(ExecutionError, match="tests of failing_bench failed; what the simulator printed says why"):
        run_tests(PRESETS["tiny"], "failing_bench")
    assert "the image has 9 bytes, memory has 8; make the bench with size=9" in capfd.readouterr().out


def test_a_bench_needs_its_packages(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name.startswith("cocotb") else name)
    with pytest.raises(UnsupportedError, match=r"needs cocotb and cocotbext.axi, which are not installed"):
        run_tests(PRESETS["tiny"], "any")


def test_pauses_differ_by_seed_and_are_the_same_again():
    runs = {seed: [value for value, _ in zip(pauses(seed), range(2000))] for seed in ("1 0", "1 1", "2 0")}
    assert len(set(map(tuple, runs.values()))) == 3
    assert [value for value, _ in zip(pauses("1 0"), range(2000))] == runs["1 0"]
