"""Every name that the compiler takes from TVM, in one place: they move at every release."""

from __future__ import annotations

from tvm.ir import GenericConst as Const
from tvm.relax import Function, Var
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.dpl.pattern import DFPattern
from tvm.relax.frontend.onnx import from_onnx

__all__ = ["Const", "DFPattern", "Function", "Var", "from_onnx", "is_const", "is_op", "wildcard"]
