"""The core through cocotbext-axi, an implementation of AXI that is not ours, with random stalls on every channel."""

import os
import re
from pathlib import Path

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.sim import verilator

pytest.importorskip("amaranth")
pytest.importorskip("cocotbext.axi")

CFG, SEEDS = PRESETS["tiny"], 5
FLAGS = "-O3 --no-timing -Wno-fatal -Wno-lint --x-assign fast --x-initial fast --noassert --no-public-flat-rw".split()


def with_ids(verilog, name):
    """A module `bench` around the core: cocotbext-axi needs the transaction identifiers that the core leaves out.

    Only its ports are visible to the simulator's interface; else every signal of the core were, at ten times the cost.
    """
    declared = re.search(rf"^module {name}\(.*?^endmodule", verilog, re.M | re.S)
    assert declared
    lines = re.findall(r"^  (input|output) (\[\d+:0\] )?(\w+);", declared[0], re.M)
    ids = [("output", "", f"m_{port}id") for port in ("load0_ar", "store0_aw")]
    ids += [("input", "", f"m_{port}id") for port in ("load0_r", "store0_b")]
    outer = ", ".join(f"{way} {width}{port} /*verilator public_flat_rw*/" for way, width, port in [*lines, *ids])
    inner = ", ".join(f".{port}({port})" for _, _, port in lines)
    return f"module bench({outer});\n{name} core({inner});\nassign m_load0_arid = 0, m_store0_awid = 0;\nendmodule\n"


def test_the_core_runs_programs_through_a_foreign_axi(tmp_path, monkeypatch):
    try:
        for name, value in verilator.environment().items():
            monkeypatch.setenv(name, value)
    except UnsupportedError as exc:
        pytest.skip(str(exc))
    from cocotb_tools.runner import get_results, get_runner

    from tilewright.hw.verilog import emit

    name = emit(CFG, tmp_path / "core.v")
    (tmp_path / "bench.v").write_text(with_ids((tmp_path / "core.v").read_text(), name))
    runner = get_runner("verilator")
    runner.build(
        sources=[tmp_path / "core.v", tmp_path / "bench.v"],
        hdl_toplevel="bench",
        build_dir=tmp_path / "build",
        timescale=("1ns", "1ps"),
        build_args=[*FLAGS, "-CFLAGS", "-O1"],
        log_file=tmp_path / "build.log",
    )
    results = runner.test(
        hdl_toplevel="bench",
        test_module="cocotb_core",
        build_dir=tmp_path / "build",
        test_dir=tmp_path,
        log_file=tmp_path / "test.log",
        extra_env={
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            "CORE_CONFIG": CFG.name,
            "CORE_SEEDS": str(SEEDS),
        },
    )
    tests, failures = get_results(results)
    assert (tests, failures) == (3, 0), (tmp_path / "test.log").read_text()[-4000:]
