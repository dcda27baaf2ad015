"""Verilog of the core."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, Fragment, Module, Signal, Value

from ..circuit import check_buildable
from ..config import Config
from ..errors import ExecutionError
from .compute.gemm import ARRAY
from .core import Core


def top_name(cfg: Config) -> str:
    """The name of the top module."""
    return "tilewright_" + (re.sub(r"\W", "_", cfg.name) or "custom")


Change = Callable[[Fragment], Mapping[str, Signal]]


@contextmanager
def _uncollected() -> Generator[None, None, None]:
    """Pause the garbage collector, which spends a third of the time on millions of objects that all live."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_uncollected()
def to_verilog(cfg: Config, *, name: str = "", lines: bool = False, changes: Sequence[Change] = ()) -> str:
    """The core of `cfg` as Verilog text; its top module is `name`, or `top_name(cfg)`.

    Ports are flat and joined by `_`: `m_load0_araddr`, `s_axil_awaddr`, `clk`, `rst`; with `array_clock` 2 `clk2x`
    has a rising edge at every rising edge of `clk` and one between. With `lines`, attributes `src`
    name the line of hw/ that made every wire, register and operation. `changes` alter the elaborated core, and
    return its further ports by name.
    Raises `UnsupportedError` for a configuration that the core is not made for, `ExecutionError` where Yosys fails.
    """
    check_buildable(cfg)
    core, clocks = Core(cfg), {name: Signal(name=name) for name in ("clk", "rst", "clk2x")[: 1 + cfg.array_clock]}
    signals = {"_".join(map(str, path)): value for path, _, value in core.signature.flatten(core)}
    ports = {name: (Value.cast(value), None) for name, value in {**clocks, **signals}.items()}
    top = Fragment.get(_clocked(core, **clocks), None)
    for change in changes:
        ports |= {name: (signal, None) for name, signal in change(top).items()}
    module = name or top_name(cfg)
    try:
        return verilog.convert(top, name=module, ports=ports, strip_internal_attrs=not lines, emit_src=lines)
    except verilog.YosysError as exc:
        said = [line.strip() for line in str(exc).splitlines() if line.strip()]
        told = next((line for line in said if "Error: " in line), (said or ["no message"])[-1])
        raise ExecutionError(
            f"Yosys did not turn the circuit into Verilog ({told}); it keeps its code in the folder of caches: set "
            "XDG_CACHE_HOME to one that can be written"
        ) from None


def _clocked(core: Core, clk: Signal, rst: Signal, clk2x: Signal | None = None) -> Module:
    """`core` with `rst` through a register: no gate waits for a pin, and a simulator need not ask it in every cycle."""
    m = Module()
    held = Signal(init=1)
    pins, sync = ClockDomain("pins", reset_less=True), ClockDomain("sync")
    pins.clk = sync.clk = clk
    sync.rst = held
    m.domains += [pins, sync]
    if clk2x is not None:
        array = ClockDomain(ARRAY, reset_less=True)
        array.clk = clk2x
        m.domains += array
    m.d.pins += held.eq(rst)
    m.submodules.core = core
    return m


def emit(cfg: Config, path: str | Path, *, lines: bool = False) -> str:
    """Write the core of `cfg` to `path`, with source `lines` if asked for; returns the name of its top module."""
    Path(path).write_text(to_verilog(cfg, lines=lines))
    return top_name(cfg)
