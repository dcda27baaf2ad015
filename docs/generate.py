"""Brings the generated tables and code of the pages in this folder up to date: `make docs`.

A page holds a block between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is a key of `BLOCKS`. The tables come
from the declarations, so that no number in them is typed, and the code from sim/spec.py; tests/test_docs.py refuses
pages that are not current.

With `--outputs` it runs the commands whose output README and pages show, and replaces what stands there. The sentence
below an output, which names day and machine, is written by hand. tests/test_readme.py compares all but measured
numbers.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click

from tilewright.boards.zynq import board
from tilewright.cli import config
from tilewright.cli.app import VERBS, command, exit_codes
from tilewright.hw import fields, isa, metrics, regs, stages, vta_config
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime import formats
from tilewright.sim import dram, spec

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
README = FOLDER.parent / "README.md"
OUTPUT = re.compile(
    r"(<!-- output of: (make \w+)(, its last lines)? -->\n```\n)(.*?)(```\n<!-- end of output -->)", re.DOTALL
)
# what the Makefile's targets run, once they have set up
COMMANDS = {
    "make sim": ["examples/digits/run.py"],
    "make bench": ["-c", "from tilewright.cli.main import main; main()", "bench"],
}
# the base formats at VTA's sizes, the extensions' with all extensions
BASE, EXTENDED, TERNARY = PRESETS["vta"], PRESETS["pynq_z1"], PRESETS["pynq_z1_two"]


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def format_table(cfg: Config, name: str) -> Callable[[], str]:
    """The fields of one instruction format."""
    return lambda: isa.Isa(cfg).formats[name].table()


def definition(*names: str) -> Callable[[], str]:
    """Functions and tables of sim/spec.py, as they stand there."""

    def code() -> str:
        text, found = Path(spec.__file__).read_text(), {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                found[ast.unparse(node.targets[0])] = node
        parts = "\n\n\n".join(ast.get_source_segment(text, found[name]) or "" for name in names)
        return f"```python\n{parts}\n```"

    return code


def _undeclared(declared: Iterable[int], columns: int) -> list[list[str]]:
    """The row of the numbers below 8 that are not `declared`, where there are any."""
    left = ", ".join(str(n) for n in sorted(set(range(8)) - set(declared)))
    return [[left, "undecodable", *[""] * (columns - 2)]] if left else []


def instructions() -> str:
    """The instruction table."""
    rows = []
    for row in isa.INSTRUCTIONS:
        memory = "" if row.mem is None else f"{row.mem.id} `{row.mem.name}`"
        moves = "" if row.scratchpad is None else ("to " if row.stores is None else "from ") + row.scratchpad.name
        notes = "`x_size` 0 alone" if row.empty else "padding" if row.pads else ""
        belongs = ", ".join(row.extensions) or (f"unit {row.unit}" if row.unit else "base")
        rows.append([row.op.value, f"`{row.op.name}`", memory, row.queue.name.lower(), moves, notes, belongs])
    columns = ["opcode", "name", "memory id", "queue", "scratchpad", "with", "belongs to"]
    return markdown(columns, rows + _undeclared(isa.Op, len(columns)))


def alu_operations() -> str:
    """The table of ALU operations."""
    rows = []
    for row in isa.OPERATIONS.values():
        b = f"imm alone: a {row.imm}" if row.imm else "imm or acc[s]"
        facts = ["yes" if fact else "" for fact in (row.order_free, row.multiplies)]
        rows.append([row.op.value, f"`{row.op.name}`", row.meaning, b, *facts, ", ".join(row.extensions) or "base"])
    columns = ["alu_op", "name", "acc[d] =", "b", "in any order", "uses multipliers", "belongs to"]
    return markdown(columns, rows + _undeclared(isa.AluOp, len(columns)))


def free_numbers() -> str:
    """The numbers that no row of the instruction set has."""
    spaces: list[tuple[str, range, set[int]]] = []
    for op in (*isa.LOADS, *isa.STORES):
        taken = {row.mem.id for row in isa.rows_of(op) if row.mem is not None}
        spaces.append((f"memory id of {op.name}", range(8), taken))
    spaces.append(("`alu_op` of ALUX", range(isa.SECOND_SPACE, 1 << isa.SECOND_BITS), set(isa.OPERATIONS)))
    rows = []
    for name, numbers, taken in spaces:
        free = [n for n in numbers if n not in taken]
        if free:
            rows.append([name, ", ".join(map(str, free)) if len(free) < 8 else f"{free[0]} to {free[-1]}", len(free)])
    return markdown(["number", "free", "how many"], rows)


def memories() -> str:
    """Memory ids: who uses them, and entries at VTA's sizes, of unit `ternary` at those of `pynq_z1_two`."""
    rows = []
    for mem in sorted(isa.Mem, key=lambda mem: mem.id):
        users = [row for row in isa.INSTRUCTIONS if row.mem == mem and not row.empty]
        ops = ", ".join(row.op.name for row in users)
        space = isa.scratchpad_of(mem).name
        cfg = BASE if isa.depth(BASE, mem) else TERNARY
        rows.append([mem.id, f"`{mem.name}`", ops, space, isa.entry_bytes(cfg, mem), isa.depth(cfg, mem)])
    return markdown(["mem", "name", "used by", "scratchpad", "bytes per entry in DRAM", "entries"], rows)


def preset_table() -> str:
    """The preset configurations."""
    rows = [
        [
            f"`{cfg.name}`",
            f"{cfg.batch}x{cfg.block_in}x{cfg.block_out}",
            *(f"{getattr(cfg, f'{mem}_bytes') // 1024} kB, {getattr(cfg, f'{mem}_depth')}" for mem in _MEMORIES),
            cfg.par_entries,
            ", ".join(sorted(cfg.extensions)),
            ", ".join(cfg.units),
            f"`{cfg.fingerprint:016x}`",
        ]
        for cfg in PRESETS.values()
    ]
    sizes = [f"{mem}: size, entries" for mem in _MEMORIES]
    return markdown(["preset", "batch x in x out", *sizes, "PAR entries", "extensions", "units", "fingerprint"], rows)


_MEMORIES = ("uop", "inp", "wgt", "acc")


def verbs() -> str:
    """Every verb with its arguments and options; one of several forms with those of each."""
    parts = []
    for verb, summary in VERBS.items():
        found = command.get_command(click.Context(command, info_name="tilewright"), verb)
        assert found is not None
        parts += [f"### {verb}\n", summary, ""]
        forms = found.commands if isinstance(found, click.Group) else {"": found}
        for name, form in forms.items():
            if name:
                parts += [form.help or "", ""]
            shown = config.usage(name, form) if name else _usage(verb, form)
            parts += [f"`tilewright {shown} [OPTIONS]`", ""]
            rows = [_option_row(p) for p in form.params if isinstance(p, click.Option)]
            parts += [markdown(["option", "meaning"], rows), ""]
    return "\n".join(parts).strip()


def _usage(verb: str, found: click.Command) -> str:
    return " ".join(
        [verb, *(p.make_metavar(click.Context(found)) for p in found.params if isinstance(p, click.Argument))]
    )


def _option_row(option: click.Option) -> list[str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = f" `{option.metavar}`" if option.metavar else ""
    notes = ["required"] if option.required else []
    if option.show_default and not option.required:
        default = option.opts[0] if option.default is True else option.default
        notes.append(f"default `{default}`")
    return [names + value, (option.help or "") + (f" ({', '.join(notes)})" if notes else "")]


def config_fields() -> str:
    """The fields of a configuration, from their declarations."""
    rows = []
    for f in dataclasses.fields(Config):
        p = fields.parameters(Config)[f.name]
        default = f.default if p.usual == "" else p.usual
        if isinstance(default, (frozenset, tuple)):
            default = ", ".join(default) or "none"
        rows.append([f"`{f.name}`", p.meaning, p.legal, str(default).lower(), p.part.value, p.cost])
    return markdown(["field", "meaning", "legal values", "default", "in the fingerprint", "cost"], rows)


def config_extensions() -> str:
    """The extensions, from their declarations."""
    rows = [
        [
            f"`{name}`",
            e.meaning,
            ", ".join(filter(None, (e.extends and f"`{e.extends}`", e.needs))) or "nothing",
            e.cost,
        ]
        for name, e in fields.EXTENSIONS.items()
    ]
    return markdown(["extension", "meaning", "needs", "cost"], rows)


def vta_keys() -> str:
    """The keys of VTA's vta_config.json."""
    return markdown(["key", "field"], [[f"`{key}`", what] for key, what in vta_config.keys().items()])


def network_operators() -> str:
    """The operators that are read, and of which formats."""
    from tilewright.cli.operators import FORMATS, by_operator

    rows = [
        [name, *("yes" if kind in kinds else "" for kind in FORMATS)] for name, kinds in by_operator([*FORMATS]).items()
    ]
    return markdown(["operator", *FORMATS.values()], rows)


def other_formats() -> str:
    """Formats that are recognised, and what to do with a file of one."""
    return markdown(
        ["file", "what to do"],
        [[kind.name, kind.remedy.replace("{path}", "FILE")] for kind in formats.FORMATS if kind.remedy],
    )


def memory_presets() -> str:
    """The presets of `--dram`."""
    fields = [f.name for f in dataclasses.fields(dram.Dram) if f.name not in ("name", "seed")]
    rows = [
        [f"`{name}`", *(getattr(preset, field) for field in fields), dram.MEANINGS[name]]
        for name, preset in dram.PRESETS.items()
    ]
    return markdown(["preset", *(f"`{field}`" for field in fields), "what it is"], rows)


def metric_table() -> str:
    """The metrics of a configuration with all extensions, and who counts them."""
    who = {metrics.EVERY: "every device", metrics.CLOCKED: "timing, rtl, board", metrics.FOLLOWED: "timing, rtl"}
    who |= {metrics.TIMING: "timing", metrics.CIRCUIT: "rtl"}
    rows = []
    for metric in metrics.metrics(EXTENDED).values():
        over = f": `{metric.over[0]}` / `{metric.over[1]}`" if metric.over else ""
        rows.append([f"`{metric.name}`", metric.kind.value, metric.unit, metric.doc + over, who[metric.by]])
    return markdown(["metric", "kind", "unit", "meaning", "counted by"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "metrics": metric_table,
    "network-operators": network_operators,
    "other-formats": other_formats,
    "stages": lambda: stages.table(EXTENDED),
    "board": lambda: board.table(board.load_board()),
    "board-kv260": lambda: board.table(board.load_board("kv260")),
    "boards": board.boards_table,
    "instructions": instructions,
    "memories": memories,
    "alu-operations": alu_operations,
    "free-numbers": free_numbers,
    "presets": preset_table,
    "config-fields": config_fields,
    "config-extensions": config_extensions,
    "vta-keys": vta_keys,
    "registers": regs.table,
    "memory-presets": memory_presets,
    "exit-codes": lambda: markdown(["status", "meaning"], exit_codes()),
    "verbs": verbs,
    **{f"format-{name}": format_table(BASE, name) for name in ("LOAD", "STORE", "GEMM", "ALU", "ALUX", "UOP")},
    **{f"format-{name}": format_table(EXTENDED, name) for name in ("LOADP", "STOREQ", "PAR")},
    "format-DWGEMM": format_table(PRESETS["pynq_z1_plus"], "DWGEMM"),
    "code-signed": definition("signed"),
    "code-order": definition("check", "order"),
    "code-LOAD": definition("load"),
    "code-STORE": definition("store"),
    "code-STOREQ": definition("storeq", "requantised"),
    "code-GEMM": definition("gemm", "accumulate", "indices"),
    "code-DWGEMM": definition("dwgemm"),
    "code-TERNARY": definition("ternary", "ternary_value"),
    "code-ALU": definition("alu", "table_value", "shift_right", "OPERATIONS", "REDUCED"),
    "code-FINISH": definition("finish"),
}


def updated(text: str) -> str:
    """A page's `text` with every generated block current."""
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


def output_of(command: str) -> str:
    """What `command` of a page prints here and now."""
    done = subprocess.run(
        [sys.executable, *COMMANDS[command]], cwd=README.parent, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def with_outputs(text: str) -> str:
    """A page's `text` with the output of every command that it shows: all of it, or as many last lines as now."""

    def current(match: re.Match[str]) -> str:
        lines = output_of(match[2]).splitlines(keepends=True)
        return match[1] + "".join(lines[-match[4].count("\n") :] if match[3] else lines) + match[5]

    return OUTPUT.sub(current, text)


def main() -> None:
    """Rewrite the pages that are not current, and name them."""
    for page in [README, *sorted(FOLDER.glob("*.md"))]:
        text = page.read_text()
        new = updated(text)
        if "--outputs" in sys.argv[1:]:
            new = with_outputs(new)
        if new != text:
            page.write_text(new)
            sys.stdout.write(f"{page.name} updated\n")


if __name__ == "__main__":
    main()
