"""`build`: a TVM schedule becomes a program of one configuration."""

from __future__ import annotations

from ..hw.config import Config, load_config
from ..hw.errors import ScheduleError
from ..runtime.program import Program
from .lower import record
from .tvm_compat import IRModule, PrimFunc, Schedule


def build(scheduled: Schedule | PrimFunc | IRModule, config: Config | str, *, name: str | None = None) -> Program:
    """The program of a scheduled function: TIR whose tensors on chip have scopes local.inp, local.wgt, local.acc.

    The program's buffers are named as the function's parameters; those it stores to are outputs. Element
    widths in DRAM are those of the scratchpad that a tensor is moved to: an int8 tensor loaded into local.wgt has
    `wgt_bits` per element. `name` defaults to the function's.

    Raises `ScheduleError` or `UnsupportedError` naming the statement that no instruction covers, and
    `CapacityError` naming the tensor that does not fit a scratchpad.
    """
    func, default = _function(scheduled)
    return record(func, load_config(config), name or default)


def _function(scheduled: Schedule | PrimFunc | IRModule) -> tuple[PrimFunc, str]:
    if isinstance(scheduled, PrimFunc):
        return scheduled, str((scheduled.attrs or {}).get("global_symbol", "main"))
    mod = scheduled.mod if isinstance(scheduled, Schedule) else scheduled
    if not isinstance(mod, IRModule):
        raise ScheduleError(f"build takes a Schedule, PrimFunc or IRModule, not {type(scheduled).__name__}")
    functions = {var.name_hint: func for var, func in mod.functions.items() if isinstance(func, PrimFunc)}
    if len(functions) != 1:
        raise ScheduleError(f"build takes one function; the module has {', '.join(sorted(functions)) or 'none'}")
    return next(iter(functions.values())), next(iter(functions))
