"""The circuit as a device: the Verilog that hw/rtl emits, translated by Verilator, with its memory in C++."""

from .device import ProtocolError, RtlDevice

__all__ = ["ProtocolError", "RtlDevice"]
