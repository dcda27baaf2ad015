"""`tilewright disasm`: a program's instructions as text."""

from __future__ import annotations

import click

from ..hw.errors import FileError
from ..hw.isa import INSN_BYTES
from ..runtime.disasm import disassemble, disassemble_words
from ..runtime.executable import Executable
from ..sim.replay import read_case
from . import report
from .options import json_option


def listings(path: str) -> dict[str, list[str]]:
    """Lines per launch of a `.tw` program, or of the program of a recorded case."""
    if not path.endswith(".npz"):
        launches = Executable.load(path).launches
        found = {step.name: disassemble(step.launch) for step in launches}
        return found | {f"{step.name}, steady": disassemble(step.steady) for step in launches if step.steady}
    case = read_case(path)
    end = case.insn_addr + case.insn_count * INSN_BYTES
    if not 0 <= case.insn_addr <= end <= len(case.dram_in):
        raise FileError(f"{path}: instructions at {case.insn_addr:#x} to {end:#x} are outside its memory")
    return {case.name: disassemble_words(case.cfg, case.dram_in[case.insn_addr : end].view("<u8").reshape(-1, 2))}


@click.command()
@click.argument("program", metavar="X.tw|CASE.npz")
@json_option
def command(program: str, as_json: bool) -> None:
    """Print the instructions of a program or of a recorded case.

    A line holds the index, the queue, the fields that are not zero, the tokens popped and pushed, and the buffer that
    the DRAM address is relative to, with what a symbol adds to it.
    """
    found = listings(program)
    if as_json:
        report.emit_json({"program": program, "launches": found})
        return
    for name, lines in found.items():
        report.say(f"{name}: {len(lines)} instructions")
        report.say("\n".join(lines))
