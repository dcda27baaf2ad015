"""The core through cocotbext-axi, an implementation of AXI that is not ours, with random stalls on every channel."""

import re
from pathlib import Path

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.sim.rtl import verilator

pytest.importorskip("amaranth")
pytest.importorskip("cocotbext.axi")

CFG, SEEDS = PRESETS["tiny"], 20
FLAGS = "-O3 --no-timing -Wno-fatal -Wno-lint --x-assign fast --x-initial fast --noassert --no-public-flat-rw"
FLAGS = [*FLAGS.split(), "-CFLAGS", "-O1"]


def with_ids(verilog, name):
    """A module `bench` around the core: cocotbext-axi needs identifiers, which the core leaves out, and long lengths.

    Only its ports are visible to the simulator's interface; else every signal of the core were, at ten times the cost.
    """
    declared = re.search(rf"^module {name}\(.*?^endmodule", verilog, re.M | re.S)
    assert declared
    lines = re.findall(r"^  (input|output) (\[\d+:0\] )?(\w+);", declared[0], re.M)
    ids = [("output", "", f"m_{port}id") for port in ("load0_ar", "store0_aw")]
    ids += [("input", "", f"m_{port}id") for port in ("load0_r", "store0_b")]
    outer = ", ".join(
        f"{way} {'[7:0] ' if port.endswith('len') else width}{port} /*verilator public_flat_rw*/"
        for way, width, port in [*lines, *ids]
    )
    inner = ", ".join(f".{port}({port}{'[3:0]' if port.endswith('len') else ''})" for _, _, port in lines)
    tied = "assign m_load0_arid = 0, m_store0_awid = 0, m_load0_arlen[7:4] = 0, m_store0_awlen[7:4] = 0;"
    return f"module bench({outer});\n{name} core({inner});\n{tied}\nendmodule\n"


@pytest.mark.circuit
def test_the_core_runs_programs_through_a_foreign_axi(tmp_path, monkeypatch):
    try:
        for name, value in verilator.environment().items():
            monkeypatch.setenv(name, value)
    except UnsupportedError as exc:
        pytest.skip(str(exc))
    monkeypatch.syspath_prepend(Path(__file__).parent)  # the runner hands sys.path on
    import cocotb_tools.config
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    from tilewright.hw.rtl.verilog import emit

    name = emit(CFG, tmp_path / "core.v")
    core = (tmp_path / "core.v").read_text()
    bench = with_ids(core, name)
    runner = get_runner("verilator")

    def build(folder):
        (folder / "core.v").write_text(core)
        (folder / "bench.v").write_text(bench)
        runner.build(
            sources=[folder / "core.v", folder / "bench.v"],
            hdl_toplevel="bench",
            build_dir=folder,
            timescale=("1ns", "1ps"),
            build_args=FLAGS,
            log_file=tmp_path / "build.log",
        )
        for file in folder.iterdir():
            if file.name != "bench":
                file.unlink()

    # the program finds cocotb's libraries by their path: another installation needs another program
    libraries = str(cocotb_tools.config.libs_dir)
    key = {"sources": [core, bench], "flags": FLAGS, "libraries": libraries} | verilator.identity("cocotb")
    results = runner.test(
        hdl_toplevel="bench",
        hdl_toplevel_lang="verilog",
        test_module="cocotb_core",
        build_dir=verilator.cached("cocotb", key, build),
        test_dir=tmp_path,
        log_file=tmp_path / "test.log",
        extra_env={"CORE_CONFIG": CFG.name, "CORE_SEEDS": str(SEEDS)},
    )
    tests, failures = get_results(results)
    assert (tests, failures) == (3, 0), (tmp_path / "test.log").read_text()[-4000:]
