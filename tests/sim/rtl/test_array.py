"""sim/rtl/speedups.py: the function is the multiplier array, product by product and cycle by cycle."""

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import verilog
from amaranth.hdl import Cat, ClockDomain, Fragment, Module, Signal, Value

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.compute.gemm import Dot
from tilewright.sim.random_programs import ODD, ROWS
from tilewright.sim.replay import replay_case
from tilewright.sim.rtl import speedups, verilator
from tilewright.sim.rtl.rewrite import rewritten

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE.parents[1] / "data" / "programs").glob("*.npz"))
PYNQ, TINY = PRESETS["pynq_z1"], PRESETS["tiny"]

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def design(cfg):
    """(Verilog of the circuit and of the function with common inputs; its ports)."""
    m, clk = Module(), Signal(name="port_clk")
    domain = m.domains.sync = ClockDomain("sync", reset_less=True)
    dots = m.submodules.circuit, m.submodules.function = Dot(cfg), Dot(cfg)
    ports = {"port_clk": clk}
    m.d.comb += domain.clk.eq(clk)
    for name in ("en", "inp", "wgt", "rows", "row", "near", "extra"):
        given = [Value.cast(getattr(dot, name)) for dot in dots if hasattr(dot, name)]
        port = ports[f"port_{name}"] = Signal(len(given[0]) if given else 1, name=f"port_{name}")
        m.d.comb += [value.eq(port) for value in given]
    for name, dot in zip(("circuit", "function"), dots):
        ports[f"{name}_sums"] = Signal(32 * cfg.lanes, name=f"{name}_sums")
        m.d.comb += ports[f"{name}_sums"].eq(Cat(_word(dot.sums[k]) for k in range(cfg.lanes)))
    top, function = Fragment.get(m, None), Fragment()
    at = next(k for k, (_, name, _) in enumerate(top.subfragments) if name == "function")
    function.subfragments.append(top.subfragments[at])
    speedups.with_function(function)
    (top.subfragments[at],) = function.subfragments
    text = verilog.convert(top, name="both", ports={name: (value, None) for name, value in ports.items()})
    return rewritten(text) + speedups.module(cfg), ports


def _word(value):
    return Cat(value, value[-1].replicate(32 - len(value)))


def both(cfg):
    """The library of both.cpp for `cfg`."""
    text, ports = design(cfg)
    values = speedups.defines(cfg) | {
        f"{name.upper()}_BITS": len(ports[name]) for name in ("port_inp", "port_wgt", "port_near")
    }
    values |= {"DEPTHWISE": int("depthwise" in cfg.extensions), "SUM_BYTES": 4 * cfg.lanes}
    flags = [f"-D{name}={value}" for name, value in values.items()]
    sources = [HERE / "both.cpp", speedups.SOURCE]

    def make(folder):
        (folder / "both.v").write_text(text)
        verilator.build_library(folder, folder / "both.v", "both", sources, flags)

    key = {"text": text, "flags": flags, "sources": [source.read_text() for source in sources]} | verilator.identity()
    library = ctypes.CDLL(str(verilator.cached("test", key, make) / "core.so"))
    library.products.restype = library.arrays.restype = ctypes.c_uint64
    library.arrays.argtypes = [ctypes.c_uint64]
    return library


# pynq_z1 has most gates to build; `rows` packs products, too
SLOW = [pytest.param(cfg, id=cfg.name, marks=pytest.mark.slow) for cfg in (PYNQ, ODD)]


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", [pytest.param(ROWS, id="rows"), *SLOW])
def test_random_arrays_are_equal_in_every_cycle(cfg):
    assert both(cfg).arrays(100_000) > 100_000


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", [pytest.param(ROWS, id="rows"), SLOW[0]])
def test_every_product_of_every_multiplier_is_equal(cfg):
    assert both(cfg).products() > cfg.batch * cfg.block_in << 16


@pytest.mark.slow
@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in PROGRAMS])
def test_golden_programs_leave_equal_memory_after_equal_cycles(path):
    plain, fast = replay_case(path, "rtl"), replay_case(path, "rtl_fast")
    assert plain.passed, plain.detail
    assert fast.passed, fast.detail
    assert replace(fast.stats, timeline=None) == replace(plain.stats, timeline=None)
    assert fast.stats.timeline and plain.stats.timeline
    got, want = fast.stats.timeline(), plain.stats.timeline()
    for name in ("queue", "issue", "start", "end"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
