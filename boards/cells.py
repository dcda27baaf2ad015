"""Delays of the primitives of the 7 series: picoseconds of the slow corner, speed grade -1.

Slices have two sets of figures. `LOGIC` are those of Yosys' cell library, by which ABC9 maps: a LUT's slower inputs
take up to 642 ps, which holds a little of the wiring at its pins. `PLACED` are those that Vivado prints for a routed
design, without any wiring: the routing model (boards/timing.py) adds it.

Block RAMs and DSPs have in both sets the rows of the data sheet (DS187, Z-7020, column -1), as far as we know them: the
figures were not compared with the sheet, those of block RAMs agree with Yosys' library, and the set-ups of RSTRAM and
of CEAD are estimates. Some rows of a DSP are the worst of several paths (with and without the pre-adder); Yosys'
library has each of these paths, in the figures of grade -3, which equal the data sheet's of that grade. Such a path is
Yosys' figure times the row's ratio of -1 to -3, 1.33 to 1.37. Pattern detection and cascades of operands are not in the
table: a cell with them is uncovered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .netlist import Cell, Netlist

Pin = TypeVar("Pin")

DSP = "DSP48E1"
PRE_ADDER = ("DREG", "ADREG")  # of the sum A + D, where the cell makes it
REGISTERS = ("AREG", "BREG", "CREG", *PRE_ADDER, "MREG", "PREG")
FULL = ("AREG", "BREG", "MREG", "PREG")  # of a product with all registers

INPUT_SETUP = {"A": 370, "B": 450, "C": 240, "D": 420}  # into AREG, BREG, CREG, DREG
PRE_ADDER_SETUP = 1760  # of A and D into ADREG
# the row of a table: plain adder, product, product of the pre-adder's sum
PRODUCT_SETUP = {"A": (0, 1940, 3290), "B": (0, 1760, 1760), "D": (0, 0, 3170)}  # into MREG
SUM_SETUP = {"A": (1960, 3730, 5070), "B": (1940, 3560, 3560), "D": (0, 0, 4950)}  # into PREG
SUM_SETUP |= {"C": (1700,) * 3, "PCIN": (1400,) * 3}
THROUGH = {"A": (2070, 3850, 5190), "B": (2080, 3670, 3670), "D": (0, 0, 5070)}  # to P, without a register
THROUGH |= {"C": (1820,) * 3, "PCIN": (1520,) * 3}
OUT_OF_INPUT = {"AREG": (2210, 4020, 5370), "BREG": (2220, 3830, 3830), "DREG": (0, 0, 5320), "ADREG": (0, 0, 4010)}
OUT_OF_PREG, OUT_OF_MREG, OUT_OF_CREG = 440, 2310, 2300
CASCADE, CASCADE_OUT_OF_PREG = 200, 580  # PCOUT after P, and after the clock
ENABLE_SETUP: dict[str, float] = {
    "CEA1": 520,
    "CEA2": 520,
    "CEB1": 520,
    "CEB2": 520,
    "CEC": 420,
    "CED": 520,
    "CEAD": 520,
    "CEM": 270,
}
ENABLE_SETUP |= {"CEP": 530}
RESET_SETUP: dict[str, float] = {"RSTA": 550, "RSTB": 550, "RSTC": 90, "RSTD": 590, "RSTM": 270, "RSTP": 350}
# least period between registers inside: all used, none behind the multiplier, none behind the pre-adder, neither
PERIOD, WITHOUT_MREG, WITHOUT_ADREG, WITHOUT_BOTH = 2154, 3884, 3443, 5244
Bit = tuple[str, int]  # port and index
# set-up of a memory in LUTs, and of a shift register
RAM_ADDRESS_SETUP, RAM_DATA_SETUP, RAM_WRITE_SETUP, SHIFT_DATA_SETUP, SHIFT_ENABLE_SETUP = 362, 384, 654, 173, 109
MUX = {"MUXF7": {"I0": 217, "I1": 223, "S": 296}, "MUXF8": {"I0": 104, "I1": 94, "S": 273}}
# CARRY4: output -> input -> delay
CARRY = {
    "O0": {"CYINIT": 482, "S0": 223, "CI": 222},
    "O1": {"CYINIT": 598, "DI0": 407, "S0": 400, "S1": 205, "CI": 334},
    "O2": {"CYINIT": 584, "DI0": 556, "DI1": 537, "S0": 523, "S1": 558, "S2": 226, "CI": 239},
    "O3": {"CYINIT": 642, "DI0": 615, "DI1": 596, "DI2": 438, "S0": 582, "S1": 618, "S2": 330, "S3": 227, "CI": 313},
    "CO0": {"CYINIT": 536, "DI0": 379, "S0": 340, "CI": 271},
    "CO1": {"CYINIT": 494, "DI0": 465, "DI1": 445, "S0": 433, "S1": 469, "CI": 157},
    "CO2": {"CYINIT": 592, "DI0": 540, "DI1": 520, "DI2": 356, "S0": 512, "S1": 548, "S2": 292, "CI": 228},
    "CO3": dict(CYINIT=580, DI0=526, DI1=507, DI2=398, DI3=385, S0=508, S1=528, S2=378, S3=380, CI=114),
}
# RAMB18E1 and RAMB36E1: clock to output without and with the output register, least period, set-up by start of the port
BRAM_CLOCK_TO_OUT, BRAM_CLOCK_TO_OUT_REGISTERED, BRAM_PERIOD = 2460, 890, 2576
BRAM_SETUP = {"ADDR": 570, "DI": 740, "WE": 540, "EN": 450, "REGCE": 360, "RSTREG": 350, "RSTRAM": 450}
BRAM_PORTS = {"DOADO": "DOA_REG", "DOPADOP": "DOA_REG", "DOBDO": "DOB_REG", "DOPBDOP": "DOB_REG"}
BLOCK_RAMS = ("RAMB18E1", "RAMB36E1")
# PS7, from its SDF: the slowest AXI output after its clock, the longest set-up of an AXI input
PS7_CLOCK_TO_OUT, PS7_SETUP, PS7_BUSES = 1530, 1090, ("MAXIGP", "SAXIGP", "SAXIHP", "SAXIACP")
CLOCKS = {"C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK", "FCLKCLK", "SAXIACPACLK"}
CLOCKS |= {f"{bus}{k}ACLK" for bus in PS7_BUSES[:3] for k in range(4)}
CLOCK_BUFFERS = {"BUFG", "BUFGCTRL"}
CONSTANTS = {"VCC", "GND"}


@dataclass
class PinDelays(Generic[Pin]):
    """Delays of one cell in ps: clock to output, set-up before the clock, input to output, least period inside."""

    launch: dict[Pin, float] = field(default_factory=dict)
    capture: dict[Pin, float] = field(default_factory=dict)
    arcs: dict[tuple[Pin, Pin], float] = field(default_factory=dict)
    period: float = 0


@dataclass(frozen=True)
class Slice:
    """Delays of one set: `lut` by input of a LUT6 (a smaller one has its last inputs), `lut_after_carry` if not 0."""

    lut: tuple[int, ...]
    lut_after_carry: int
    clock_to_q: int
    data_setup: int
    enable_setup: int
    reset_setup: int
    ram_clock_to_out: int
    shift_clock_to_out: int


LOGIC = Slice((642, 631, 472, 407, 238, 127), 0, 303, 0, 109, 404, 1163, 1472)
PLACED = Slice((124,) * 6, 300, 478, 50, 205, 429, 1314, 1632)


class Delays(PinDelays[Bit]):
    """Delays of one cell, by the bits of its ports."""


def delays(cell: Cell, figures: Slice, after_carry: frozenset[str] = frozenset()) -> Delays | None:
    """The delays of `cell`, of its connected bits; None if the table has no such cell.

    `after_carry` are the inputs of a LUT that a carry chain drives.
    """
    kind = cell.kind
    if kind in CLOCK_BUFFERS | CONSTANTS:
        return Delays()
    if kind == "INV" or kind in {f"LUT{n}" for n in range(1, 7)}:
        return _lut(cell, figures, after_carry)
    if kind == "CARRY4":
        return _carry(cell)
    if kind in MUX:
        return Delays(arcs={((port, 0), ("O", 0)): ps for port, ps in MUX[kind].items() if cell.bits(port)})
    if kind in ("FDRE", "FDSE"):
        setup = {
            "D": figures.data_setup,
            "CE": figures.enable_setup,
            "R": figures.reset_setup,
            "S": figures.reset_setup,
        }
        return Delays({("Q", 0): figures.clock_to_q}, {(port, 0): ps for port, ps in setup.items() if cell.bits(port)})
    if kind in ("SRL16E", "SRLC32E"):
        return _shift(cell, figures)
    if kind in ("RAM32M", "RAM64M"):
        return _lut_ram(cell, figures)
    if kind in ("RAMD64E", "RAMD32"):
        return _ram_bit(cell, figures)
    if kind in BLOCK_RAMS:
        return _block_ram(cell)
    if kind == DSP:
        return _dsp(cell)
    return _ps7(cell) if kind == "PS7" else None


def _lut(cell: Cell, figures: Slice, after_carry: frozenset[str]) -> Delays:
    inputs = sorted(port for port in cell.pins if port not in cell.outputs)
    by_pin = dict(zip(inputs, figures.lut[-len(inputs) :]))
    if figures.lut_after_carry:
        by_pin |= dict.fromkeys(after_carry, figures.lut_after_carry)
    return Delays(arcs={((port, 0), ("O", 0)): by_pin[port] for port in inputs if cell.bits(port)})


def _carry(cell: Cell) -> Delays:
    found = Delays()
    for output, inputs in CARRY.items():
        for port, ps in inputs.items():
            source, target = _split(port), _split(output)
            if _connected(cell, source) and _connected(cell, target):
                found.arcs[source, target] = ps
    return found


def _split(pin: str) -> Bit:
    """`CO3` -> ("CO", 3); `CI` -> ("CI", 0)."""
    return (pin[:-1], int(pin[-1])) if pin[-1].isdigit() else (pin, 0)


def _connected(cell: Cell, bit: Bit) -> bool:
    nets = cell.pins.get(bit[0], [])
    return bit[1] < len(nets) and nets[bit[1]] is not None


def _shift(cell: Cell, figures: Slice) -> Delays:
    found = Delays()
    for port in cell.outputs:
        found.launch |= {(port, k): figures.shift_clock_to_out for k, _ in cell.bits(port)}
    for port, ps in (("D", SHIFT_DATA_SETUP), ("CE", SHIFT_ENABLE_SETUP)):
        found.capture |= {(port, k): ps for k, _ in cell.bits(port)}
    for port in cell.pins:
        if port.startswith("A"):
            for k, _ in cell.bits(port):
                found.arcs[(port, k), ("Q", 0)] = figures.lut[int(port[1:] or k)]
    return found


def _lut_ram(cell: Cell, figures: Slice) -> Delays:
    """Four memories with an address each; the address of D is the write address of all four."""
    found = Delays()
    for letter in "ABCD":
        outputs = [("DO" + letter, k) for k, _ in cell.bits("DO" + letter)]
        found.launch |= dict.fromkeys(outputs, figures.ram_clock_to_out)
        found.capture |= {("DI" + letter, k): RAM_DATA_SETUP for k, _ in cell.bits("DI" + letter)}
        for k, _ in cell.bits("ADDR" + letter):
            found.arcs |= {(("ADDR" + letter, k), output): figures.lut[min(k, 5)] for output in outputs}
    found.capture |= {("ADDRD", k): RAM_ADDRESS_SETUP for k, _ in cell.bits("ADDRD")}
    found.capture |= {("WE", k): RAM_WRITE_SETUP for k, _ in cell.bits("WE")}
    # an address whose output nothing reads
    found.capture |= {
        ("ADDR" + letter, k): 0
        for letter in "ABC"
        if not cell.bits("DO" + letter)
        for k, _ in cell.bits("ADDR" + letter)
    }
    return found


def _ram_bit(cell: Cell, figures: Slice) -> Delays:
    """One LUT of a memory, with an address to read and one to write."""
    found = Delays()
    outputs = [("O", k) for k, _ in cell.bits("O")]
    found.launch |= dict.fromkeys(outputs, figures.ram_clock_to_out)
    for port in cell.pins:
        if port.startswith("RADR"):
            entry = port, 0
            found.arcs |= {(entry, output): figures.lut[int(port[4:])] for output in outputs}
            if not outputs:  # the LUT is there for its address
                found.capture[entry] = 0
    setups = {"WADR": RAM_ADDRESS_SETUP, "WE": RAM_WRITE_SETUP, "I": RAM_DATA_SETUP}
    for start, ps in setups.items():
        found.capture |= {(port, 0): ps for port in cell.pins if port.rstrip("0123456789") == start}
    return found


def _ps7(cell: Cell) -> Delays:
    """The AXI ports alone: the others are asynchronous, or not used."""
    found = Delays()
    for port in cell.pins.keys() - CLOCKS:
        if port.startswith(PS7_BUSES):
            bits, ps = (found.launch, PS7_CLOCK_TO_OUT) if port in cell.outputs else (found.capture, PS7_SETUP)
            bits |= {(port, k): ps for k, _ in cell.bits(port)}
    return found


def _block_ram(cell: Cell) -> Delays:
    found = Delays(period=BRAM_PERIOD)
    for port in cell.pins:
        if port in CLOCKS:
            continue
        if port in cell.outputs:
            register = BRAM_PORTS.get(port)
            if register:
                ps = BRAM_CLOCK_TO_OUT_REGISTERED if cell.number(register, 0) else BRAM_CLOCK_TO_OUT
                found.launch |= {(port, k): ps for k, _ in cell.bits(port)}
            continue
        setup = [ps for start, ps in BRAM_SETUP.items() if port.startswith(start)]
        if setup:
            found.capture |= {(port, k): setup[0] for k, _ in cell.bits(port)}
    return found


def _dsp(cell: Cell) -> Delays | None:
    by_port = dsp_delays(cell)
    if by_port is None:
        return None
    found = Delays(period=by_port.period)
    for ports, bits in ((by_port.launch, found.launch), (by_port.capture, found.capture)):
        for port, ps in ports.items():
            bits |= {(port, k): ps for k, _ in cell.bits(port)}
    for (source, target), ps in by_port.arcs.items():
        outputs = [(target, k) for k, _ in cell.bits(target)]
        for k, _ in cell.bits(source):
            found.arcs |= {((source, k), output): ps for output in outputs}
    return found


PortDelays = PinDelays[str]  # by whole ports


def dsp_registers(cell: Cell) -> list[str]:
    """Which of `REGISTERS` the cell uses."""
    possible = [name for name in REGISTERS if name not in PRE_ADDER or _pre_adds(cell)]
    return [name for name in possible if cell.number(name, 1) > 0]


def is_full_dsp(cell: Cell) -> bool:
    """Whether a product has all registers that it can have."""
    return {*FULL, *(PRE_ADDER if _pre_adds(cell) else ())} <= set(dsp_registers(cell))


def dsp_register_use(netlist: Netlist) -> Counter[str]:
    """The DSPs of `netlist` by the registers that they use, e.g. "AREG BREG MREG"; "none" without any."""
    cells = [cell for cell in netlist.cells.values() if cell.kind == DSP]
    return Counter(" ".join(dsp_registers(cell)) or "none" for cell in cells)


def dsp_delays(cell: Cell) -> PortDelays | None:
    """None if the cell uses a part that the table has not."""
    text = cell.parameters.get
    if text("USE_PATTERN_DETECT", "NO_PATDET") != "NO_PATDET":
        return None
    if text("A_INPUT", "DIRECT") != "DIRECT" or text("B_INPUT", "DIRECT") != "DIRECT":
        return None
    row = 2 if _pre_adds(cell) else 1 if text("USE_MULT", "MULTIPLY") != "NONE" else 0
    used = set(dsp_registers(cell)) - ({"MREG"} if row == 0 else set())
    found = PortDelays(capture=ENABLE_SETUP | RESET_SETUP, period=_period(used, row))
    for port in ("A", "B", "C", "D", "PCIN"):
        if port == "D" and row < 2:
            continue
        setup = _setup(port, used, row)
        if setup:
            found.capture[port] = setup
        else:
            ps = THROUGH[port][row]
            found.arcs |= {(port, "P"): ps, (port, "PCOUT"): ps + CASCADE}
    out = _out(used, row)
    if "PREG" in used:
        found.launch = {"P": out, "PCOUT": CASCADE_OUT_OF_PREG}
    elif out:
        found.launch = {"P": out, "PCOUT": out + CASCADE}
    return found


def _pre_adds(cell: Cell) -> bool:
    return cell.parameters.get("USE_DPORT", "FALSE") == "TRUE"


def _setup(port: str, used: set[str], row: int) -> int:
    """The set-up of `port` at the first register that it reaches; 0 if there is none."""
    if port + "REG" in used:
        return INPUT_SETUP[port]
    if port in ("A", "D") and "ADREG" in used:
        return PRE_ADDER_SETUP
    if port in PRODUCT_SETUP and "MREG" in used:
        return PRODUCT_SETUP[port][row]
    return SUM_SETUP[port][row] if "PREG" in used else 0


def _out(used: set[str], row: int) -> int:
    """Clock to P from the slowest of the last registers; 0 if there is no register."""
    if "PREG" in used:
        return OUT_OF_PREG
    outs = [OUT_OF_CREG] if "CREG" in used else []
    if "MREG" in used:
        return max([*outs, OUT_OF_MREG])
    hidden = {"AREG", "DREG"} if "ADREG" in used else set()
    return max([*outs, *(OUT_OF_INPUT[name][row] for name in OUT_OF_INPUT if name in used - hidden)], default=0)


def _period(used: set[str], row: int) -> int:
    """The least period between two registers inside; 0 if no path inside starts and ends at a register."""
    before = {"AREG", "BREG", *PRE_ADDER} & used
    if not before or not {"MREG", "PREG"} & used:
        return PERIOD if {"MREG", "PREG"} <= used else 0
    added = row == 2 and "ADREG" not in used and bool({"AREG", "DREG"} & used)
    multiplied = row > 0 and "MREG" not in used
    return {(0, 0): PERIOD, (0, 1): WITHOUT_MREG, (1, 0): WITHOUT_ADREG, (1, 1): WITHOUT_BOTH}[added, multiplied]
