"""Delays of a DSP48E1 by the registers that it uses, in picoseconds, speed grade -1.

Where a row of the data sheet (DS187, Z-7020, column -1) is for one path, the figure is the row's, as far as we know it:
the rows were not compared with the sheet, and the set-up of CEAD is an estimate. Some rows are the
worst of several paths (with and without the pre-adder); Yosys' library has each of these paths, in the figures of grade
-3, which equal the data sheet's of that grade. Such a path is Yosys' figure times the row's ratio of -1 to -3, 1.33 to
1.37. Pattern detection and cascades of operands are not in the table: a cell with them is uncovered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .netlist import Cell, Netlist

Pin = TypeVar("Pin")

KIND = "DSP48E1"
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


@dataclass
class PinDelays(Generic[Pin]):
    """Of one cell, in ps: clock to output, set-up before the clock, input to output, and the least period inside."""

    launch: dict[Pin, float] = field(default_factory=dict)
    capture: dict[Pin, float] = field(default_factory=dict)
    arcs: dict[tuple[Pin, Pin], float] = field(default_factory=dict)
    period: float = 0


PortDelays = PinDelays[str]  # by whole ports


def registers(cell: Cell) -> list[str]:
    """Which of `REGISTERS` the cell uses."""
    possible = [name for name in REGISTERS if name not in PRE_ADDER or _pre_adds(cell)]
    return [name for name in possible if cell.number(name, 1) > 0]


def is_full(cell: Cell) -> bool:
    """Whether a product has all registers that it can have."""
    return {*FULL, *(PRE_ADDER if _pre_adds(cell) else ())} <= set(registers(cell))


def register_use(netlist: Netlist) -> Counter[str]:
    """The DSPs of `netlist` by the registers that they use, e.g. "AREG BREG MREG"; "none" without any."""
    cells = [cell for cell in netlist.cells.values() if cell.kind == KIND]
    return Counter(" ".join(registers(cell)) or "none" for cell in cells)


def delays(cell: Cell) -> PortDelays | None:
    """None if the cell uses a part that the table has not."""
    text = cell.parameters.get
    if text("USE_PATTERN_DETECT", "NO_PATDET") != "NO_PATDET":
        return None
    if text("A_INPUT", "DIRECT") != "DIRECT" or text("B_INPUT", "DIRECT") != "DIRECT":
        return None
    row = 2 if _pre_adds(cell) else 1 if text("USE_MULT", "MULTIPLY") != "NONE" else 0
    used = set(registers(cell)) - ({"MREG"} if row == 0 else set())
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
    """The set-up of `port` at the first register behind it; 0 if there is no register."""
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
