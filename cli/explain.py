"""`tilewright explain`: instructions and cycles of each statement or operator, the bound and the losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from ..hw.config import load_config
from ..hw.errors import InputError, UnsupportedError
from ..runtime.executable import Executable, LaunchStep
from ..runtime.program import Program
from ..runtime.steps import turns
from ..sim.dram import Dram, load_dram
from ..sim.losses import explain, merged
from ..sim.profile import Share, profile, total
from ..sim.statements import occupancy
from ..sim.timing import predict
from . import report
from .layers import short_name
from .options import (
    DEFAULT_CONFIG,
    Choices,
    choice_options,
    config_option,
    contract_option,
    dram_option,
    json_option,
    shape_option,
    target_option,
)
from .programs import MODEL_HELP, executable_of, graph_in, open_program, python_value
from .remedy import remedy, say_remedy

HELP = f"""Show what MODEL became, all on the timing model: the instructions of every statement, their cycles and waits,
the occupancy of the scratchpads, and why it takes longer than its bound: losses, each with its cycles and remedy.

Of a schedule it prints the lowered TIR, in which a comment before each statement says what became of it. Of a network
it prints one row per operator; `--operator` prints the statements of one. A kernel of tw.kernel takes `--shape
x0=1,16,8,8` for each of its inputs.

{MODEL_HELP}"""


@click.command(help=HELP)
@click.argument("model")
@config_option(None, "As for compile (default: pynq_z1; a .tw program: the one it was compiled for).")
@choice_options(contract_option, dram_option, target_option, shape_option)
@click.option("--operator", metavar="NAME", help="Print the statements of one operator.")
@json_option
def command(
    model: str,
    config: str | None,
    choices: Choices,
    operator: str | None,
    as_json: bool,
) -> None:
    """Compile, time every launch, and print."""
    memory = load_dram(choices.dram)
    with report.progress(f"explaining {model}"):
        executable, text = _opened(model, config, choices)
        found = [_Explained(step, memory) for step in executable.launches]
    if operator is not None and not any(operator == name for one in found for name in one.operators):
        known = ", ".join(name for one in found for name in one.operators)
        raise UnsupportedError(f"--operator {operator}: unknown; the program has {known}"[:300])
    advice = remedy(model, executable)
    if as_json:
        result = {"program": model, "config": executable.cfg.name, "contract": executable.contract, "dram": memory.name}
        together = {step.name for step in turns(executable.steps)[0]}
        whole = merged([one.explanation for one in found if one.name in together])
        result |= {"remedy": advice} | whole.to_dict()
        report.emit_json(result | {"tir": text, "launches": [one.to_dict() for one in found]})
        return
    report.say_contract(executable.contract)
    for one in found:
        if text:
            report.say("\n".join(one.annotated(text)))
        one.print(operator)
    say_remedy(advice)


def _opened(model: str, config: str | None, choices: Choices) -> tuple[Any, str | None]:
    """(executable, the text of the lowered TIR if MODEL is a schedule)."""
    cfg = load_config(config or DEFAULT_CONFIG)
    value = python_value(model, cfg, None if choices.dram is None else load_dram(choices.dram))
    if value is None or graph_in(value) is not None:
        return open_program(model, config, choices), None
    from ..compiler.user_kernels import UserKernel

    if choices.shapes and not isinstance(value, UserKernel):
        raise InputError(f"--shape: {model} has sizes; the option is for kernels and networks: drop it")
    if isinstance(value, (Executable, Program)):
        return executable_of(value, cfg), None
    if isinstance(value, UserKernel):
        if not choices.shapes:
            raise UnsupportedError(f"{model}: a kernel needs the shapes of its inputs, as in --shape x0=1,16,8,8")
        names = [f"x{number}" for number in range(len(choices.shapes))]
        if choices.shapes.keys() != {*names}:
            known = ", ".join(choices.shapes)
            raise InputError(f"--shape {known}: the inputs of a kernel are x0, x1 and so on, each of them once")
        return value.compile(*(tuple(choices.shapes[name]) for name in names), config=cfg), None
    from ..compiler.api import lowered_text

    return executable_of(value, cfg), lowered_text(value)


class _Explained:
    """One launch: its shares by operator and by statement, occupancy, bound and losses."""

    def __init__(self, step: LaunchStep, dram: Dram):
        launch, timing = step.launch, predict(step.launch, dram=dram)
        timeline = timing.timeline()
        self.name, self.cycles = step.name, timing.cycles
        self.shares = profile(launch, timeline, timing.cycles)
        self.statements = profile(launch, timeline, timing.cycles, depth=launch.depth)
        self.total = total(self.shares)
        self.occupancy = occupancy(launch)
        self.explanation = explain(launch, dram)
        self.operators = [share.name for share in self.shares if share.path]

    def to_dict(self) -> dict[str, Any]:
        """Everything, JSON-ready."""
        return {
            "launch": self.name,
            "cycles": self.cycles,
            "gemm_use": round(self.total.gemm_use, 4),
            "operators": [{"operator": share.name} | share.to_dict() for share in self.shares],
            "statements": [
                {"path": list(share.path), "by_instruction": dict(share.work.insns)} | share.to_dict()
                for share in self.statements
            ],
            "occupancy": {name: {"entries": used, "depth": depth} for name, (used, depth) in self.occupancy.items()},
        } | self.explanation.to_dict()

    def annotated(self, text: str) -> Iterator[str]:
        """The lines of lowered TIR with a comment in the place of each statement's mark."""
        from ..compiler.api import STATEMENT

        shares = {share.name.split(":")[0]: share for share in self.statements if len(share.path) > 1}
        number = 0
        for line in text.splitlines():
            if STATEMENT not in line:
                yield line
                continue
            number += 1
            share = shares.get(str(number))
            told = "no instruction" if share is None else f"{_instructions(share)}; {_costs(share)}"
            yield f"{line[: len(line) - len(line.lstrip())]}# statement {number}: {told}"

    def print(self, operator: str | None) -> None:
        """The tables, and a warning for each loss that matters."""
        report.say(f"{self.name}: {self.cycles:,} cycles, GEMM use {100 * self.total.gemm_use:.1f} %")
        rows = self.shares
        if operator is not None or len(self.operators) < 2:
            rows = [s for s in self.statements if operator in (None, *s.path[:1])]
        report.table(
            ["operator" if rows is self.shares else "statement", "instructions", "cycles", "share", "GEMM use"]
            + [f"wait {reason}" for reason in self.total.waited()],
            [_row(share, self.cycles) for share in rows],
        )
        report.table(
            ["scratchpad", "entries used", "of", "share"],
            [[n, used, of, f"{100 * used / of:.0f} %"] for n, (used, of) in self.occupancy.items()],
        )
        report.table(["loss", "cycles", "share", "statement", "cause: remedy"], list(self.explanation.rows()))
        for loss in self.explanation.warnings:
            where = " / ".join(short_name(name) for name in loss.path) or self.name
            saved = f"saves about {loss.cycles:,} of {self.cycles:,} cycles"
            report.say(f"warning: {where}: {loss.cause}: {loss.remedy} ({saved})")


def _row(share: Share, cycles: int) -> Sequence[object]:
    name = short_name(share.name)
    part, use = f"{100 * share.cycles / cycles:.1f} %", f"{100 * share.gemm_use:.1f} %"
    return [name, _instructions(share), share.cycles, part, use, *share.waited().values()]


def _instructions(share: Share) -> str:
    """Number of instructions by kind: `16 GEMM, 4 LOAD.UOP`."""
    return ", ".join(f"{count:,} {name}" for name, count in share.work.insns.most_common())


def _costs(share: Share) -> str:
    waits = ", ".join(f"{cycles:,} for {reason}" for reason, cycles in share.waited().items() if cycles)
    return f"{share.cycles:,} cycles" + (f", waits {waits}" if waits else "")
