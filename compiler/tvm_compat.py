"""Every name that the compiler imports from TVM: releases move them, and only this module follows.

Importing it raises `UnsupportedError` if TVM is missing or has another version.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..hw import errors
from ..hw.errors import UnsupportedError
from .sentences import refusing

TVM_VERSION = "0.27.0.post1"
FFI_SERIES = "0.1.14"  # from 0.1.15 on tvm.ir.save_json crashes the process, and with it every Schedule.tensorize
_REMEDY = "install it with: pip install 'tilewright[compiler]'"

if TYPE_CHECKING:  # TVM's annotations lack the fields of its nodes: type checkers see Any

    class Node(Any):
        """Any object of TVM: nodes of TIR, blocks, loops, traces."""

    __version__ = ""
    _any: Any = None
    ir = relax = s_tir = sym = te = tirx = tvm_ffi = _any
    Sequential = is_const = is_op = wildcard = _any
    structural_equal = structural_hash = structural_mutate = structural_walk = _any
    Const = DFPattern = Function = IRModule = PrimFunc = Schedule = TensorIntrin = Var = T = Node

else:
    try:
        import tvm_ffi
        from tvm import IRModule, __version__, ir, relax, s_tir, sym, te, tirx
        from tvm.ir import GenericConst as Const
        from tvm.ir.transform import Sequential
        from tvm.relax import Function, Var
        from tvm.relax.dpl import is_const, is_op, wildcard
        from tvm.relax.dpl.pattern import DFPattern
        from tvm.s_tir import TensorIntrin
        from tvm.script import tirx as T
        from tvm.tirx import PrimFunc
        from tvm_ffi import Object as Node
        from tvm_ffi import structural_equal, structural_hash, structural_mutate, structural_walk
    except ImportError as exc:
        raise UnsupportedError(f"the compiler needs Apache TVM {TVM_VERSION} ({exc}); {_REMEDY}") from None

    class Schedule(s_tir.Schedule):
        """TVM's schedule, whose primitives refuse by a `ScheduleError` of one sentence."""

        __slots__ = ()  # objects of TVM have no fields of their own

        def copy(self) -> Schedule:
            """An independent schedule in the same state; blocks and loops of this one are valid in it."""
            made = Schedule.__new__(Schedule)
            made.__move_handle_from__(super().copy())
            return made

    def _refusing(name: str, primitive: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(primitive)
        def call(*args: Any, **kwargs: Any) -> Any:
            with refusing(name):
                return primitive(*args, **kwargs)

        return call

    for _name, _primitive in vars(s_tir.Schedule).items():
        if inspect.isfunction(_primitive) and (_name == "__init__" or not _name.startswith("_")):
            setattr(Schedule, _name, _refusing(_name, vars(Schedule).get(_name, _primitive)))

__all__ = [
    "Const",
    "DFPattern",
    "Function",
    "IRModule",
    "Node",
    "PrimFunc",
    "Schedule",
    "Sequential",
    "T",
    "TensorIntrin",
    "Var",
    "check_versions",
    "ir",
    "is_const",
    "is_op",
    "relax",
    "s_tir",
    "structural_equal",
    "structural_hash",
    "structural_mutate",
    "structural_walk",
    "sym",
    "te",
    "tirx",
    "tuning",
    "wildcard",
    "without_intrinsics_of_others",
]


@contextmanager
def without_intrinsics_of_others() -> Iterator[None]:
    """Keep meta_schedule from registering the intrinsics of every CPU and GPU that TVM knows, which takes 12 s.

    They can be imported afterwards.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules:
        yield
        return
    sys.modules[name] = ModuleType(name)
    try:
        yield
    finally:
        del sys.modules[name]


def tuning() -> SimpleNamespace:
    """Modules for tuning, imported late because it takes seconds. Fields: meta_schedule, derived_object, Target."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule
    from tvm.target import Target

    return SimpleNamespace(meta_schedule=meta_schedule, derived_object=derived_object, Target=Target)


def check_versions(tvm_version: str, ffi_version: str) -> None:
    """Raise `UnsupportedError` unless both are the versions that this module is written for."""
    if tvm_version.split("+")[0] != TVM_VERSION:
        raise UnsupportedError(f"Apache TVM {tvm_version} is installed, the compiler needs {TVM_VERSION}; {_REMEDY}")
    if not re.match(re.escape(FFI_SERIES) + r"(\.|$)", ffi_version):
        raise UnsupportedError(f"apache-tvm-ffi {ffi_version} is installed, not {FFI_SERIES}.*; {_REMEDY}")


def _register_errors() -> None:
    """Make errors of the project keep their classes through TVM's callbacks. TVM has a `ScheduleError`, too."""
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.TilewrightError):
            tvm_ffi.register_error(f"tilewright.{name}", cls)


check_versions(__version__, tvm_ffi.__version__)
_register_errors()
