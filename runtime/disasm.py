"""A program as text: one line per instruction, with its queue and the names of its buffers."""

from __future__ import annotations

from collections.abc import Callable

from ..hw.config import Config
from ..hw.isa import known_isa
from .arrays import Array
from .launch import Launch


def disassemble(launch: Launch) -> list[str]:
    """Lines of `launch`; each instruction is followed by the name of the buffer that its `dram_base` counts from.

    The offset that a symbol adds to `dram_base` in a run follows the name.
    """

    def name(k: int) -> str:
        if launch.reloc[k] < 0:
            return ""
        symbol = launch.patches.symbols.get(k)
        return f"@{launch.buffers[int(launch.reloc[k])].name}{'' if symbol is None else f' + {symbol}'}"

    return disassemble_words(launch.cfg, launch.insn, name)


def disassemble_words(cfg: Config, insn: Array, suffix: Callable[[int], str] = lambda k: "") -> list[str]:
    """Lines of the instructions `insn`, uint64 (n, 2): index, queue, fields that are not zero, tokens."""
    isa = known_isa(cfg)
    lines = list[str]()
    for k, f in enumerate(isa.decode(insn)):
        reason = isa.undecodable(f)
        queue = "?" if reason else isa.queue(f).name
        text = isa.disassemble(f)
        lines.append(" ".join(filter(None, [f"{k:5d}  {queue:7s}", text, suffix(k), f"<{reason}>" if reason else ""])))
    return lines
