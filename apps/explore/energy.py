"""Energy of an inference, by a model: what moves and what multiplies, at published costs.

Operations and memories: M. Horowitz, "Computing's energy problem", ISSCC 2014, at 45 nm. Power of a Zynq-7020 at rest
and of one Cortex-A9 at work: assumed. Nothing of it is measured on a board: use it to compare configurations.
"""

from __future__ import annotations

PJ_PER_MAC = 0.3  # an int8 product 0.2 pJ, its sum in 32 bits 0.1
PJ_PER_DRAM_BYTE = 240.0  # 1.3 to 2.6 nJ for 64 bits
REST_WATT = 0.25  # programmable logic, configured
HOST_WATT = 0.5  # the host while it computes


def energy_uj(macs: float, dram_bytes: float, device_us: float, host_us: float) -> float:
    """Microjoules of an inference of `macs` multiply-accumulates and `dram_bytes` moved.

    >>> round(energy_uj(12.5e6, 1e6, 690, 30), 1)
    438.8
    """
    dynamic = (PJ_PER_MAC * macs + PJ_PER_DRAM_BYTE * dram_bytes) * 1e-6
    return dynamic + REST_WATT * (device_us + host_us) + HOST_WATT * host_us
