"""Which configurations the circuit is made for; the instruction set allows more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import UnsupportedError
from .units import WIDEST, stripes

if TYPE_CHECKING:
    from .config import Config

# of the FPGA of the PYNQ-Z1: LUTs, flip-flops, block RAMs of 36 kbit, DSP48E1
XC7Z020 = {"lut": 53_200, "ff": 106_400, "bram": 140, "dsp": 220}


def check_buildable(cfg: Config) -> None:
    """Raises `UnsupportedError` for numbers and widths of ports that the core is not made for.

    Whoever makes something for the circuit asks here, so that all refuse the same configurations with the same words:
    the circuit's text, the timing model, the compiler of networks, explorations, the board.
    """
    if cfg.load_ports > 2 and stripes(cfg) == 1:
        raise UnsupportedError(
            f"Config.load_ports = {cfg.load_ports}: the load unit takes {WIDEST} bits at once, and with axi_bits = "
            f"{cfg.axi_bits} its ports give {cfg.load_ports * cfg.axi_bits}; use 1 or 2"
        )
    if cfg.store_ports != 1:
        raise UnsupportedError(f"Config.store_ports = {cfg.store_ports}: the core has 1; use that")
    bits = 8 * cfg.par_entry_bytes
    if "requant" in cfg.extensions and bits % cfg.axi_bits:
        raise UnsupportedError(
            f"Config.axi_bits = {cfg.axi_bits}: extension requant needs entries of PAR that are whole beats, and with "
            f"block_out = {cfg.block_out} they have {bits} bits; use at most {bits // 3}"
        )
    most, ports = 8 * cfg.block_out, stripes(cfg)
    if "wgt4" in cfg.extensions and ports * cfg.axi_bits > most:
        raise UnsupportedError(
            f"Config.axi_bits = {cfg.axi_bits}: extension wgt4 takes {most} bits at once with block_out = "
            f"{cfg.block_out}, and the load unit has {ports} port{'s' * (ports > 1)}; use at most {most // ports}"
        )


def check_one_clock(cfg: Config, what: str) -> None:
    """Raises `UnsupportedError` where `cfg` has a second clock, which `what` does not know."""
    if cfg.array_clock > 1:
        raise UnsupportedError(
            f"Config.array_clock = {cfg.array_clock}: {what} knows one clock alone; use array_clock = 1, or Vivado, "
            "which times both"
        )
