"""`build` and `build_into`: compile a TVM schedule to a program of a configuration, or append it to one."""

from __future__ import annotations

from collections.abc import Mapping

from ..hw.config import Config, load_config
from ..hw.errors import ScheduleError
from ..runtime.buffer import Buffer
from ..runtime.program import Program
from .advice import check_function
from .intrin import INSTRUCTION
from .tir.passes import lower_tir
from .tir.placement import Placement
from .tir.record import record_into
from .tvm_compat import IRModule, PrimFunc, s_tir

Scheduled = s_tir.Schedule | PrimFunc | IRModule
STATEMENT = f'T.attr(0, "{INSTRUCTION}", 1)'  # how TVM prints the mark of a statement


def build(scheduled: Scheduled, config: Config | str, *, name: str | None = None) -> Program:
    """Compile a scheduled function, TIR whose tensors on chip have scopes local.inp, local.wgt, local.acc, to a
    program.

    The program's buffers have the names of the function's parameters; a parameter that it stores to is an output. A
    scratchpad determines the element width in DRAM: an int8 tensor that is loaded into local.wgt has `wgt_bits` per
    element. `name` defaults to the function's. Of a module of several functions it names one; without it all become
    one program, in the order of their names, with buffers `function.parameter`.

    >>> import tilewright as tw
    >>> from tilewright.compiler.schedule.dense import dense
    >>> program = tw.build(dense(tw.load_config("tiny"), 1, 8, 8), "tiny")  # 8 x 8 weights, in blocks of 4 x 4
    >>> {name: buffer.shape for name, buffer in program.buffers.items()}
    {'x': (1, 2, 1, 4), 'w': (2, 2, 4, 4), 'out': (1, 2, 1, 4)}

    Raises `ScheduleError` or `UnsupportedError` naming the statement that no instruction covers, `ScheduleError` for a
    `name` that is none of several functions, and `CapacityError` naming the tensor that does not fit a scratchpad.
    """
    functions = _functions(scheduled)
    if name in functions:
        functions = {name: functions[name]}
    if len(functions) > 1:
        if name is not None:
            raise ScheduleError(f"name = {name!r}: must be a function of the module: {', '.join(sorted(functions))}")
        program = Program(load_config(config), "main")
        placement = Placement(program.cfg)
        for each, func in sorted(functions.items()):
            build_into(program, func, None, placement, name=each)
        return program
    ((default, func),) = functions.items()
    program = Program(load_config(config), name or default)
    check_function(func, program.cfg)
    with program.origin(program.name):
        record_into(program, func, {}, "", Placement(program.cfg))
    return program


def lowered_text(scheduled: Scheduled) -> str:
    """The lowered TIR of a scheduled function, as text, in which `STATEMENT` is before each statement that becomes
    instructions; empty for several functions. Raises `ScheduleError`.
    """
    functions = list(_functions(scheduled).values())
    return lower_tir(functions[0]).script() if len(functions) == 1 else ""


def build_into(
    program: Program,
    scheduled: Scheduled,
    buffers: Mapping[str, Buffer] | None = None,
    placement: Placement | None = None,
    *,
    name: str | None = None,
) -> dict[str, Buffer]:
    """Append a scheduled function to `program`, and return the buffers of its parameters by their names.

    `buffers` are buffers of `program` for some parameters, so that one function loads what another stores. They have as
    many elements as the parameter, of the same width, in any shape. The other parameters, and temporaries in DRAM, are
    declared as `name.parameter`; `name` defaults to the function's.

    With the same `placement` for all functions of a program each begins in the scratchpad entries that the one before
    it released first, so that its loads run while that one still computes. It does not change results.

    Raises as `build` does, and `ScheduleError` for a buffer that does not fit its parameter.
    """
    functions = _functions(scheduled)
    if len(functions) > 1:
        raise ScheduleError(f"build_into takes one function; the module has {', '.join(sorted(functions))}")
    ((default, func),) = functions.items()
    known = {param.name for param in func.params}
    for key in buffers or {}:
        if key not in known:
            raise ScheduleError(f"unknown parameter {key!r}; {default} has {', '.join(sorted(known))}")
    check_function(func, program.cfg)
    name = name or default
    with program.origin(name):
        return record_into(program, func, buffers or {}, f"{name}.", placement or Placement(program.cfg))


def _functions(scheduled: Scheduled) -> dict[str, PrimFunc]:
    """The scheduled functions by name, one or more."""
    if isinstance(scheduled, PrimFunc):
        return {str((scheduled.attrs or {}).get("global_symbol", "main")): scheduled}
    mod = scheduled.mod if isinstance(scheduled, s_tir.Schedule) else scheduled
    if not isinstance(mod, IRModule):
        raise ScheduleError(
            f"build takes a Schedule, PrimFunc or IRModule, not {type(scheduled).__name__}; of tensors make one with "
            "Schedule(te.create_prim_func([inputs, outputs]))"
        )
    functions = {var.name_hint: func for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
    if not functions:
        raise ScheduleError("the module has no PrimFunc; give one that te.create_prim_func makes, scheduled")
    return functions
