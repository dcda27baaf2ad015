"""Verilog of the core."""

from __future__ import annotations

import re
from pathlib import Path

from amaranth.back import verilog
from amaranth.hdl import Value

from .config import Config
from .core import Core


def top_name(cfg: Config) -> str:
    """The name of the top module."""
    return "tilewright_" + (re.sub(r"\W", "_", cfg.name) or "custom")


def to_verilog(cfg: Config, *, name: str = "") -> str:
    """The core of `cfg` as Verilog text; its top module is `name`, or `top_name(cfg)`.

    Ports are flat and joined by `_`: `m_load0_araddr`, `s_axil_awaddr`, `clk`, `rst`.
    Raises `UnsupportedError` for a configuration that the core is not made for.
    """
    core = Core(cfg)
    ports = {"_".join(map(str, p)): (Value.cast(v), None) for p, _, v in core.signature.flatten(core)}
    return verilog.convert(core, name=name or top_name(cfg), ports=ports, strip_internal_attrs=True, emit_src=False)


def emit(cfg: Config, path: str | Path) -> str:
    """Write the core of `cfg` to `path`; returns the name of its top module."""
    Path(path).write_text(to_verilog(cfg))
    return top_name(cfg)
