"""The C of one executable: `NAME.h`, `NAME.c`, and the array of its program."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ..executable import Executable
from ..hostops.c_calls import Call
from ..steps import HostStep, LaunchStep, Step, Tensor, When, ranges, reads_writes
from . import hostcalls
from .memory import Plan, plan, staged
from .text import array, c_type, comment, identifier, wrapped

_MOST = (1 << 32) - 1


@dataclass(frozen=True)
class Patched:
    """The instructions of step `number` that a symbol moves: the input that is its value, and its limit."""

    number: int
    tensor: str
    limit: int
    rows: np.ndarray  # (instruction, rule)
    rules: np.ndarray  # (step, block, within)


class Network:
    """C sources of `executable`, whose functions and files begin with `name`, an identifier.

    Raises `UnsupportedError` for a host operator without a C kernel, and the errors of `memory.plan`.
    """

    def __init__(self, executable: Executable, name: str):
        self.executable, self.name = executable, name
        self.arguments: dict[str, str] = {}
        for tensor in [*executable.inputs, *executable.outputs]:
            self.arguments[tensor.name] = identifier(tensor.kind, tensor.name, self.arguments.values())
        self._local = {t: f"t{k}" for k, t in enumerate(executable.tensors)}
        pointers = {t: self._pointer(t) for t in executable.tensors}
        self.calls: dict[int, Call] = {
            number: hostcalls.call(step, executable.tensors, pointers)
            for number, step in enumerate(executable.steps)
            if isinstance(step, HostStep)
        }
        self.plan: Plan = plan(executable, self._scratch())
        self.patched = list(_patched(executable))

    @property
    def sources(self) -> list[str]:
        """The files of kernels that the host's steps call."""
        return sorted({source for call in self.calls.values() for source in call.sources})

    @property
    def signature(self) -> str:
        """The parameters of the function that runs the network."""
        return ", ".join(
            f"{'const ' if t.kind == 'input' else ''}{c_type(t.dtype)} *{self.arguments[t.name]}" for t in self._ends()
        )

    def header(self) -> str:
        """`NAME.h`."""
        upper, program = self.name.upper(), self.executable
        rounding = f", rounding contract {program.contract}" if program.contract else ""
        sizes = [
            f"#define {upper}_{self.arguments[t.name].upper()} {math.prod(t.shape)} "
            + comment(f"{t.kind} {t.name}: {t.dtype} {t.shape}")
            for t in self._ends()
        ]
        reset = [f"void {self.name}_reset(void); /* every state gets its initial values */"] if program.states else []
        return "\n".join(
            [
                comment(f"{program.name} for {program.cfg.name}, fingerprint {program.cfg.fingerprint:016x}{rounding}"),
                f"#ifndef {upper}_H",
                f"#define {upper}_H",
                "",
                '#include "tw_platform.h"',
                "",
                "/* Elements of inputs and outputs */",
                *sizes,
                "",
                "/* Bytes that the platform gives, and bytes of the program with its constants */",
                f"#define {upper}_MEMORY {self.plan.total}u",
                f"#define {upper}_ALIGN {self.plan.align}u /* of its address */",
                f"#define {upper}_PROGRAM {len(self.plan.image)}u",
                "",
                f"extern const uint32_t {self.name}_program[]; /* where it is not in {self.name}.bin */",
                "",
                "/* Each returns 0, or what tw_platform.h lists. `program`: the array above, or the contents of",
                " * the .bin; it is copied. */",
                f"int {self.name}_open(const void *program);",
                f"int {self.name}_run({self.signature});",
                *reset,
                "",
                "#endif",
                "",
            ]
        )

    def program(self) -> str:
        """The source with the program and its constants as an array."""
        words = np.pad(self.plan.image, (0, -len(self.plan.image) % 4)).view("<u4")
        included = f'#include "{self.name}.h"'
        return f"{included}\n\n{array(f'{self.name}_program', words.astype(np.uint32), 'const')}\n"

    def source(self) -> str:
        """`NAME.c`."""
        includes = [f"{self.name}.h", hostcalls.HEADER, "tw_runtime.h"]
        run = "\n".join(self._run())
        parts = [comment(f"{self.executable.name}: {len(self.executable.steps)} steps")]
        parts += ["\n".join([f'#include "{file}"' for file in includes] + ["", "#include <string.h>"])]
        parts += ["\n".join(self._tables())]
        used = {*_words(run), *(f"{self._local[t.name]}_first" for t in self.executable.states)}
        parts += [array(name, data) for name, data in self._data().items() if name in used]
        if self.executable.states:
            parts += ["\n".join(self._reset())]
        parts += ["\n".join(self._open()), run]
        return "\n\n".join(parts) + "\n"

    def _ends(self) -> list[Tensor]:
        return [*self.executable.inputs, *self.executable.outputs]

    def _pointer(self, name: str) -> str:
        """The C expression of a tensor's address."""
        tensor = self.executable.tensors[name]
        if name in self.arguments and not self._on_device(name):
            return self.arguments[name]
        return self._local[name] if tensor.kind != "constant" or self._on_device(name) else f"{self._local[name]}_data"

    def _on_device(self, name: str) -> bool:
        return any(isinstance(s, LaunchStep) and name in s.bind.values() for s in self.executable.steps)

    def _scratch(self) -> int:
        """Bytes beyond tensors that steps of the host need, and states that are moved together."""
        moved = sum(-(-self.executable.tensors[name].nbytes // 8) * 8 for name in staged(self.executable))
        return max([moved, *(call.scratch for call in self.calls.values())])

    def _tables(self) -> Iterator[str]:
        steps = [(k, s) for k, s in enumerate(self.executable.steps) if isinstance(s, LaunchStep)]
        yield "static tw_memory memory;"
        if steps:
            yield f"static const tw_launch launches[{len(steps)}] = {{"
            for k, step in steps:
                yield f"    {{{self.plan.launch(k)}u, {len(step.launch.insn)}u}}, {comment(step.name)}"
            yield "};"
        if self.patched:
            yield f"static uint32_t held[{len(self.patched)}]; /* values of inputs that addresses have now */"
        for k, found in enumerate(self.patched):
            yield f"static const tw_patch patches_{k}[] = {{\n{_rows(found.rows)}\n}};"
            yield f"static const tw_rule rules_{k}[] = {{\n{_rows(found.rules)}\n}};"

    def _data(self) -> dict[str, np.ndarray]:
        """Constant arrays of the host's steps."""
        found = {name: data for call in self.calls.values() for name, data in call.data.items()}
        for t in self.executable.tensors.values():
            if t.kind == "constant" and t.data is not None and not self._on_device(t.name):
                found[self._pointer(t.name)] = t.data
            elif t.kind == "state" and t.data is not None and t.data.any():
                found[f"{self._local[t.name]}_first"] = t.data
        return found

    def _places(self, names: set[str]) -> Iterator[str]:
        """Pointers to tensors in memory."""
        for name, local in self._local.items():
            if name in names and name in self.plan.at:
                tensor = self.executable.tensors[name]
                pointer = f"{c_type(tensor.dtype)} *const {local} = (void *)(memory.data + {self.plan.at[name]}u);"
                yield f"    {pointer} {comment(f'{name}: {tensor.dtype} {tensor.shape}')}"

    def _reset(self) -> Iterator[str]:
        states = self.executable.states
        yield f"void {self.name}_reset(void)"
        yield "{"
        yield "    if (memory.data == NULL)"
        yield "        return;"
        yield from self._places({t.name for t in states})
        for t in states:
            local = self._local[t.name]
            if t.data is not None and t.data.any():
                yield f"    memcpy({local}, {local}_first, {t.nbytes}u);"
            else:
                yield f"    memset({local}, 0, {t.nbytes}u);"
            if self._on_device(t.name):
                yield f"    tw_platform_write_back({local}, {t.nbytes}u);"
        yield "}"

    def _open(self) -> Iterator[str]:
        plan, launches = self.plan, sum(isinstance(s, LaunchStep) for s in self.executable.steps)
        yield f"int {self.name}_open(const void *program)"
        yield "{"
        yield "    static const tw_program layout = {"
        yield f"        0x{self.executable.cfg.fingerprint:016x}ull, {len(plan.image)}u, {plan.device}u, {plan.total}u,"
        yield f"        {plan.align}u, {launches}u, {'launches' if launches else 'NULL'}"
        yield "    };"
        yield "    int status = tw_open(&layout, program, &memory);"
        yield "    if (status != 0)"
        yield "        return status;"
        if self.patched:
            yield "    memset(held, 0, sizeof held);"
        if self.executable.states:
            yield f"    {self.name}_reset();"
        yield "    return 0;"
        yield "}"

    def _run(self) -> Iterator[str]:
        body = [*self._body()]
        used = _words("\n".join(body))
        yield f"int {self.name}_run({self.signature})"
        yield "{"
        if "status" in used:
            yield "    int status;"
        yield "    if (memory.data == NULL)"
        yield "        return TW_CLOSED;"
        for condition in self._conditions():
            yield f"    if ({condition})"
            yield "        return TW_BAD_INPUT;"
        yield from self._places({t for t, local in self._local.items() if local in used})
        if "scratch" in used:
            yield f"    uint8_t *const scratch = memory.data + {self.plan.scratch}u;"
        yield from body
        yield "}"

    def _body(self) -> Iterator[str]:
        """Statements of a run after the checks of its inputs."""
        for t in self.executable.inputs:
            if self._on_device(t.name):
                yield f"    memcpy({self._local[t.name]}, {self.arguments[t.name]}, {t.nbytes}u);"
        numbered = enumerate(self.executable.steps)
        for when, steps in groupby(numbered, key=lambda item: item[1].when):
            indent = "    "
            if when is not None:
                value, indent = self._value(when.tensor), "        "
                yield f"    if ({value} >= {when.first} && {value} < {when.end}) {{"
            for number, step in steps:
                yield indent + comment(f"{step.name}: {step.op}" if isinstance(step, HostStep) else step.name)
                calls = self.calls.get(number)
                lines = self._launched(number, step) if calls is None else map(str, calls.statements)
                yield from (f"{indent}{line}" for line in lines)
            if when is not None:
                yield "    }"
        for t in self.executable.outputs:
            if self._on_device(t.name):
                yield f"    memcpy({self.arguments[t.name]}, {self._local[t.name]}, {t.nbytes}u);"
        yield from self._keep()
        yield "    return 0;"

    def _launched(self, number: int, step: Step) -> Iterator[str]:
        assert isinstance(step, LaunchStep)
        launch = f"launches[{sum(isinstance(s, LaunchStep) for s in self.executable.steps[:number])}]"
        for k, found in enumerate(self.patched):
            if found.number == number:
                value = f"(uint32_t){self._value(found.tensor)}"
                table = f"patches_{k}, {len(found.rows)}u, rules_{k}"
                yield f"tw_redirect(&memory, {launch}, {table}, held[{k}], {value});"
                yield f"held[{k}] = {value};"
        reads, writes = reads_writes(step)
        for name in dict.fromkeys(reads):
            if name in self._written_by_host():
                yield f"tw_platform_write_back({self._local[name]}, {self.executable.tensors[name].nbytes}u);"
        yield f"if ((status = tw_run(&memory, {launch})) != 0)"
        yield "    return status;"
        for name in dict.fromkeys(writes):
            if name in self._read_by_host():
                yield f"tw_platform_invalidate({self._local[name]}, {self.executable.tensors[name].nbytes}u);"

    def _written_by_host(self) -> set[str]:
        tensors = self.executable.tensors.values()
        found = {name for s in self.executable.steps if isinstance(s, HostStep) for name in s.outputs}
        return found | {t.name for t in tensors if t.kind == "input" or (t.kind == "state" and t.next != t.name)}

    def _read_by_host(self) -> set[str]:
        tensors = self.executable.tensors.values()
        found = {name for s in self.executable.steps if isinstance(s, HostStep) for name in s.inputs}
        found |= {t.next for t in tensors if t.kind == "state" and t.next not in (None, t.name)}
        return found | {t.name for t in tensors if t.kind == "output"}

    def _value(self, name: str) -> str:
        """The value of an input of one element."""
        return f"{self.arguments[name]}[0]"

    def _conditions(self) -> list[str]:
        """C conditions that hold for wrong values of inputs on which addresses or the choice of steps depend."""
        steps, found = self.executable.steps, list[str]()
        known = ranges(steps)
        if known:
            value = self._value(known[0].tensor)
            found.append(f"{value} < {known[0].first} || {value} >= {known[-1].end}")
        limits: dict[tuple[str, int], set[When | None]] = {}
        for patched in self.patched:
            limits.setdefault((patched.tensor, patched.limit), set()).add(steps[patched.number].when)
        for (tensor, limit), cases in limits.items():
            outside = f"{self._value(tensor)} < 0 || {self._value(tensor)} >= {limit}"
            if None in cases or cases >= {*known}:
                found.append(outside)
                continue
            for when in filter(None, sorted(cases, key=str)):
                if when.tensor != tensor or when.end > limit:
                    runs = self._value(when.tensor)
                    found.append(f"{runs} >= {when.first} && {runs} < {when.end} && ({outside})")
        return [*dict.fromkeys(found)]

    def _keep(self) -> Iterator[str]:
        """Every state takes its next values; values of other states are copied to scratch memory first."""
        swapped, at, later = staged(self.executable), 0, list[str]()
        for t in self.executable.states:
            if t.next is None or t.next == t.name:
                continue
            source = self._pointer(t.next)
            if t.name in swapped:
                yield f"    memcpy(scratch + {at}, {source}, {t.nbytes}u);"
                source = f"scratch + {at}"
                at += -(-t.nbytes // 8) * 8
            later.append(f"    memcpy({self._local[t.name]}, {source}, {t.nbytes}u);")
        yield from later


def _patched(executable: Executable) -> Iterator[Patched]:
    """The patches of every launch by symbol."""
    for number, step in enumerate(executable.steps):
        if not isinstance(step, LaunchStep):
            continue
        columns = step.launch.patches.columns
        for k, (symbol, limit) in enumerate(step.launch.patches.limits.items()):
            mine = columns[columns[:, 1] == k]
            rules, rule = np.unique(mine[:, 2:], axis=0, return_inverse=True)
            rows = np.stack([mine[:, 0], rule.reshape(-1)], 1)
            rules[rules > _MOST] = 0  # addresses have 32 bits, so that these are multiplied by 0
            yield Patched(number, step.symbols[symbol], limit, rows, rules)


def _words(code: str) -> set[str]:
    """The names in C code, those in comments aside."""
    return {*re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", code))}


def _rows(rows: np.ndarray) -> str:
    return wrapped("{" + ", ".join(f"{v}u" for v in row) + "}" for row in rows.tolist())
