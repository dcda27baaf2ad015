"""What a processing system offers the programmable logic: its ports, clocks and interrupts.

Names and widths are those of the primitive (PS7, PS8) and of Vivado's IP for it. A board names its system.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...hw.circuit import XC7Z020


@dataclass(frozen=True)
class Port:
    """A port to memory, `name` at the primitive, and what Vivado's IP calls it.

    `clocks` are the primitive's clock inputs, `block` the interface, `block_clock` its clock, `enable` the parameter
    that switches it on, `segment` its addresses. `user` is AxUSER of a coherent port and its bits. `width_registers`:
    address of the registers that set the width of the port's data.
    """

    name: str
    block: str
    block_clock: str
    enable: str
    segment: str
    id_bits: int = 6
    clocks: tuple[str, ...] = ("ACLK",)
    user: tuple[int, int] | None = None
    width_registers: int | None = None


@dataclass(frozen=True)
class Registers:
    """The port through which the processors reach the registers: widths, address `window`, default address `base`."""

    name: str
    block: str
    block_clock: str
    enable: str
    data_bits: int
    address_bits: int
    id_bits: int
    window: tuple[int, int]
    base: int


@dataclass(frozen=True)
class System:
    """A processing system: the primitive `cell`, `axi` version of its ports, and widths of their channels.

    `widths` are those of the memory ports' data that it can be set to, `data_bits` the widest. `memories` are the
    ports by the choice that a user has, the load ports' in their order. `clock` is the primitive's output of the
    clocks, the first of which is `clock_name`; it goes through `buffer`, and is that of a PLL of `pll_mhz` with the
    usual boot software, divided. `doubler` is the primitive that makes a clock of twice the rate of it, with an
    oscillator of `oscillator_mhz`, from clocks of `doubled_mhz`. `reset`: its output that follows the boot software,
    where it has one. `low_memory`: bytes of DRAM from address 0 on, at most. `beyond`: an address that answers with an
    error, where the ports have fewer address bits than the core.
    Of Vivado's IP: its name `family` and `version`, `clock_parameters` of clock k (two divisors, on, source), pins
    (`block_`), the rule `automation` and further `settings`.
    """

    cell: str
    axi: str
    address_bits: int
    length_bits: int
    size_bits: int
    lock_bits: int
    data_bits: int
    widths: tuple[int, ...]
    memories: dict[str, tuple[Port, ...]]
    registers: Registers
    clock: str
    clock_name: str
    clock_mhz: tuple[float, float]
    pll_mhz: float
    buffer: str
    doubler: str
    oscillator_mhz: tuple[float, float]
    doubled_mhz: tuple[float, float]
    reset: str | None
    interrupt: str
    interrupt_bits: int
    low_memory: int
    beyond: int | None
    family: str
    version: str
    clock_parameters: tuple[str, str, str, str]
    block_clock: str
    block_reset: str
    block_interrupt: str
    automation: str
    settings: tuple[str, ...]


def _hp(k: int) -> Port:
    return Port(f"SAXIHP{k}", f"S_AXI_HP{k}", f"S_AXI_HP{k}_ACLK", f"PCW_USE_S_AXI_HP{k}", f"S_AXI_HP{k}/*DDR*")


def _hp_fpd(k: int) -> Port:
    return Port(
        f"SAXIGP{k + 2}",
        f"S_AXI_HP{k}_FPD",
        f"saxihp{k}_fpd_aclk",
        f"PSU__USE__S_AXI_GP{k + 2}",
        f"SAXIGP{k + 2}/*DDR_LOW*",
        clocks=("RCLK", "WCLK"),
        width_registers=0xFD38_0000 + 0x1_0000 * k,
    )


_ACP = Port("SAXIACP", "S_AXI_ACP", "S_AXI_ACP_ACLK", "PCW_USE_S_AXI_ACP", "S_AXI_ACP/*DDR*", 3, user=(0b11111, 5))
SYSTEMS = {
    "zynq7": System(
        cell="PS7",
        axi="AXI3",
        address_bits=32,
        length_bits=4,
        size_bits=2,
        lock_bits=2,
        data_bits=64,
        widths=(64,),
        # HP0 and HP1 share a port of the DRAM controller, as do HP2 and HP3
        memories={"HP": (_hp(0), _hp(2), _hp(1), _hp(3)), "ACP": (_ACP,)},
        registers=Registers(
            "MAXIGP0",
            "M_AXI_GP0",
            "M_AXI_GP0_ACLK",
            "PCW_USE_M_AXI_GP0",
            data_bits=32,
            address_bits=32,
            id_bits=12,
            window=(0x4000_0000, 0x8000_0000),
            base=0x43C0_0000,
        ),
        clock="FCLKCLK",
        clock_name="FCLK0",
        clock_mhz=(1.0, 250.0),
        pll_mhz=1000.0,
        buffer="BUFG",
        doubler="MMCME2_BASE",
        oscillator_mhz=(600.0, 1200.0),  # speed grade -1 (DS187), whose buffers take 464 MHz
        doubled_mhz=(10.0, 232.0),
        reset="FCLKRESETN",
        interrupt="IRQF2P",
        interrupt_bits=20,
        low_memory=1 << 30,
        beyond=0x8000_0000,
        family="processing_system7",
        version="5.5",
        clock_parameters=(
            "PCW_FCLK{k}_PERIPHERAL_DIVISOR0",
            "PCW_FCLK{k}_PERIPHERAL_DIVISOR1",
            "PCW_FPGA_FCLK{k}_ENABLE",
            "PCW_FCLK{k}_PERIPHERAL_CLKSRC",
        ),
        block_clock="FCLK_CLK0",
        block_reset="FCLK_RESET0_N",
        block_interrupt="IRQ_F2P",
        automation='make_external "FIXED_IO, DDR" apply_board_preset "0" Master "Disable" Slave "Disable"',
        settings=(
            "PCW_CRYSTAL_PERIPHERAL_FREQMHZ {crystal:g}",
            "PCW_FPGA0_PERIPHERAL_FREQMHZ {mhz:g}",
            "PCW_EN_CLK0_PORT 1",
            "PCW_EN_RST0_PORT 1",
            "PCW_USE_FABRIC_INTERRUPT 1",
            "PCW_IRQ_F2P_INTR 1",
        ),
    ),
    "zynqmp": System(
        cell="PS8",
        axi="AXI4",
        address_bits=49,
        length_bits=8,
        size_bits=3,
        lock_bits=1,
        data_bits=128,
        widths=(64, 128),
        memories={"HP": tuple(map(_hp_fpd, range(4)))},
        registers=Registers(
            "MAXIGP0",
            "M_AXI_HPM0_FPD",
            "maxihpm0_fpd_aclk",
            "PSU__USE__M_AXI_GP0",
            data_bits=128,
            address_bits=40,
            id_bits=16,
            window=(0xA000_0000, 0xB000_0000),
            base=0xA000_0000,
        ),
        clock="PLCLK",
        clock_name="PL0",
        clock_mhz=(1.0, 333.0),
        pll_mhz=1500.0,
        buffer="BUFG_PS",
        doubler="MMCME4_BASE",
        oscillator_mhz=(800.0, 1600.0),
        doubled_mhz=(13.0, 333.0),
        reset=None,  # its resets are outputs of the GPIO, low until software sets them
        interrupt="PLPSIRQ0",
        interrupt_bits=8,
        low_memory=1 << 31,
        beyond=None,
        family="zynq_ultra_ps_e",
        version="3.5",
        clock_parameters=(
            "PSU__CRL_APB__PL{k}_REF_CTRL__DIVISOR0",
            "PSU__CRL_APB__PL{k}_REF_CTRL__DIVISOR1",
            "PSU__FPGA_PL{k}_ENABLE",
            "PSU__CRL_APB__PL{k}_REF_CTRL__SRCSEL",
        ),
        block_clock="pl_clk0",
        block_reset="pl_resetn0",
        block_interrupt="pl_ps_irq0",
        automation='apply_board_preset "0"',
        settings=(
            "PSU__PSS_REF_CLK__FREQMHZ {crystal:g}",
            "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ {mhz:g}",
            "PSU__FPGA_PL0_ENABLE 1",
            "PSU__USE__M_AXI_GP2 0",
            "PSU__USE__IRQ0 1",
        ),
    ),
}
# what a device has, by the beginning of the part's name
DEVICES = {
    "xc7z010": {"lut": 17_600, "ff": 35_200, "bram": 60, "dsp": 80},
    "xc7z020": XC7Z020,
    "xck26": {"lut": 117_120, "ff": 234_240, "bram": 144, "dsp": 1_248},
}
