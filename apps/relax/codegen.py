"""Compiled functions of a Relax module: the code generator `relax.ext.tilewright`, which TVM's `RunCodegen` calls.

TVM links the modules that a code generator returns, and these cannot be made in Python. So the generator returns none
and registers a runner for each function; `carried` then makes the calls calls of `tilewright.run` with the program's
bytes as a constant: an exported executable is complete.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...compiler.api import build
from ...compiler.frontend.relax import Expr, import_relax
from ...compiler.network import compile_graph
from ...compiler.tvm_compat import IRModule, ir, relax, structural_hash, structural_mutate, structural_walk, tvm_ffi
from ...hw.config import Config, load_config
from ...hw.errors import UnsupportedError
from ...runtime.executable import Executable
from ...runtime.steps import Step
from .runner import RUN, key_of, run

CODEGEN = "tilewright"
_PREFIX = "tilewright."  # of the attributes of functions
_CONSTANTS = "const_name_to_constant"  # those of functions that were compiled, which RunCodegen leaves in the module
_compiled: dict[str, Executable] = {}  # by the hash in the symbol; emptied when programs are carried
_programs: dict[str, tuple[str, bytes]] = {}  # by symbol: its key, and the bytes of the `.tw` file


class Choice(NamedTuple):
    """How functions are compiled and where they run, kept as attributes of each."""

    cfg: Config
    on: str
    contract: str

    def attributes(self) -> dict[str, str]:
        """The attributes of a function that is compiled by this choice."""
        config = json.dumps(self.cfg.to_dict(), sort_keys=True)
        return {f"{_PREFIX}config": config, f"{_PREFIX}on": self.on, f"{_PREFIX}contract": self.contract}

    @staticmethod
    def of(function: Expr) -> Choice:
        """The choice for a function. Raises `UnsupportedError` for one that `tilewright_pipeline` did not make."""
        if f"{_PREFIX}config" not in function.attrs:
            raise UnsupportedError(
                f"function {function.attrs['global_symbol']!s} has Codegen {CODEGEN!r}, but no attribute "
                f"'{_PREFIX}config'; let tilewright_pipeline make the functions"
            )
        config, on, contract = (str(function.attrs[f"{_PREFIX}{name}"]) for name in ("config", "on", "contract"))
        return Choice(load_config(json.loads(config)), on, contract)


def symbol_of(name: str, function: Expr) -> str:
    """A global name for a function, made of `name` and a hash of its body."""
    return f"{CODEGEN}_{name}_{structural_hash(function) & 0xFFFFFFFFFFFF:012x}"


def compiled(function: Expr) -> Executable:
    """The program of a function whose symbol is from `symbol_of`; tensors are in0, in1, ... and out0, out1, ...

    Raises `UnsupportedError` for operators that the compiler does not support.
    """
    symbol, choice = str(function.attrs["global_symbol"]), Choice.of(function)
    known = symbol.rsplit("_", 1)[1]
    if known not in _compiled:
        body = function.body.body
        count = len(body.fields) if isinstance(body, ir.Tuple) else len(getattr(body.ty, "fields", [body]))
        graph = import_relax(function, [f"out{k}" for k in range(count)], symbol)
        _compiled[known] = compile_graph(graph, choice.cfg, choice.contract)
    return _compiled[known]


@tvm_ffi.register_global_func(f"relax.ext.{CODEGEN}", override=True)
def codegen(functions: Sequence[Expr], _options: Expr, _names: Expr) -> list[Expr]:
    """Compile functions, and register a runner for each under its symbol. The list is empty: TVM links nothing."""
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        program = compiled(function).to_bytes()
        key = key_of(symbol.removeprefix(f"{CODEGEN}_").rsplit("_", 1)[0], Choice.of(function).on, program)
        _programs[symbol] = key, program
        held = np.frombuffer(program, np.uint8).copy()  # what is only read has no DLPack
        tvm_ffi.register_global_func(symbol, functools.partial(run, key, held), override=True)
    return []


def compiled_schedule(name: str, function: Expr, cfg: Config) -> Executable:
    """The program of a function that a schedule wrote; its tensors are in0, in1, ... and out0, out1, ...

    Raises `ScheduleError` and others as `build`.
    """
    executable = Executable.from_launch(build(function, cfg, name=name).finish())
    names: dict[str, str] = {}
    for kind, short in (("input", "in"), ("output", "out")):
        mine = [p.name for p in function.params if executable.tensors[p.name].kind == kind]
        names |= {full: f"{short}{k}" for k, full in enumerate(mine)}
    tensors = {names[t.name]: replace(t, name=names[t.name]) for t in executable.tensors.values()}
    steps: list[Step] = [
        replace(step, bind={b: names[t] for b, t in step.bind.items()}) for step in executable.launches
    ]
    return Executable(cfg, name, tensors, steps)


def is_call_of(value: Expr, names: Sequence[str]) -> bool:
    """Whether an expression is `call_tir` of one of these functions."""
    called = getattr(getattr(value, "op", None), "name", "") == "relax.call_tir"
    return called and value.args[0].name_hint in names


def other_uses(mod: Expr, names: Sequence[str]) -> Iterator[str]:
    """Why functions of a module that use its functions `names`, which schedules wrote, otherwise than by `call_tir`
    cannot be compiled."""

    def on_call(call: Expr, mutator: Expr) -> Expr:
        return mutator.default_mutate(call.args[1] if is_call_of(call, names) else call)

    for var, function in mod.functions.items():
        found: list[Expr] = []
        if isinstance(function, relax.Function):
            structural_walk(structural_mutate(function, [(ir.Call, on_call)]), [(ir.GlobalVar, found.append)])
        for used in sorted({one.name_hint for one in found}.intersection(names)):
            yield (
                f"function {var.name_hint!r} uses {used!r}, which a schedule wrote for the accelerator, otherwise than "
                "by R.call_tir: TVM has no code for it; call it by R.call_tir"
            )


def with_schedules(mod: Expr, names: Sequence[str], choice: Choice) -> Expr:
    """The module, in which calls of its functions `names`, which schedules wrote, run on the accelerator.

    Raises `UnsupportedError` for another use of them, and as `compiled_schedule`.
    """
    for why in other_uses(mod, names):
        raise UnsupportedError(why)
    programs = {}
    for name in names:
        program = compiled_schedule(name, mod[name], choice.cfg).to_bytes()
        programs[name] = key_of(name, choice.on, program), program

    def on_call(call: Expr, mutator: Expr) -> Expr:
        if not is_call_of(call, names):
            return mutator.default_mutate(call)
        return _run_call(call, *programs[call.args[0].name_hint])

    kept = {var: f for var, f in mod.functions.items() if var.name_hint not in programs}
    made = {
        v: structural_mutate(f, [(ir.Call, on_call)]) if isinstance(f, relax.Function) else f for v, f in kept.items()
    }
    return IRModule(made, attrs=mod.attrs, global_infos=mod.global_infos)


def carried(mod: Expr) -> Expr:
    """The module with its programs as constants, in calls of `tilewright.run` that name them."""
    functions = {name: _carried(f) if isinstance(f, relax.Function) else f for name, f in mod.functions.items()}
    _compiled.clear()
    attrs = {name: value for name, value in (mod.attrs or {}).items() if name != _CONSTANTS}
    return IRModule(functions, attrs=attrs, global_infos=mod.global_infos)


def _carried(function: Expr) -> Expr:
    def on_call(call: Expr, mutator: Expr) -> Expr:
        if getattr(call.op, "name", "") != "relax.call_dps_packed":
            return mutator.default_mutate(call)
        symbol = str(getattr(call.args[0], "global_symbol", ""))
        if symbol not in _programs:
            return mutator.default_mutate(call)
        return _run_call(call, *_programs[symbol])

    return structural_mutate(function, [(ir.Call, on_call)])


def _run_call(call: Expr, key: str, program: bytes) -> Expr:
    """`tilewright.run` of `program` in place of `call`, with its arguments and results."""
    constant = relax.const(np.frombuffer(program, np.uint8).copy())
    (given,) = call.ty_args
    results = list(given.fields) if isinstance(given, relax.TupleType) else given
    return relax.call_dps_packed(RUN, [ir.StringImm(key), constant, *call.args[1].fields], out_ty=results)
