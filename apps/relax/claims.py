"""What of a dataflow block the compiler can compute in integers: its claims.

A claim is a variable of integers, usually the result of a quantize, with the bindings between it and the integers that
it is computed from: dequantizes, a float operator, constants. compiler/frontend/relax.py decides, by reading them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...compiler import graph as g
from ...compiler.frontend.relax import INTEGERS, RelaxImporter, kind_of
from ...compiler.tvm_compat import Var, ir, relax
from ...hw.errors import InputError


class Claims(RelaxImporter):
    """The claims of a dataflow block.

    `needs` has the variables that each claimed one is computed from: claimed ones and those from outside. `inside` are
    the bindings that compute it from them. `left` are reasons why integers are not claimed.
    """

    def __init__(self, block: Any):
        super().__init__(relax.Function([], relax.SeqExpr([block], relax.Tuple([])), relax.TupleType([])), [])
        self.values = {b.var: b.value for b in self.bindings}
        self.needs: dict[Any, list[Any]] = {}
        self.inside: dict[Any, set[Any]] = {}
        self.left: list[str] = []
        self._outside: set[Any] = set()  # integers that are not computed by a claim
        for b in self.bindings:
            for var in operands(b.value):
                if var not in self.values:
                    self._give(var)
        for b in self.bindings:
            if hasattr(self.calls[b.var], "value"):
                continue
            if _fixed(b.var):
                self._claim(b.var, b.value)
            elif str(getattr(b.var.ty, "dtype", "")) in INTEGERS:
                self.left.append(f"{kind_of(b.value) or 'value'} of {b.var.name!r} has sizes that are not known")

    def _give(self, var: Any) -> None:
        """Note integers that come from outside, if they are dequantised."""
        if var in self._outside or not _fixed(var) or var.ty.dtype not in INTEGERS:
            return
        self._outside.add(var)
        try:
            self.views[var] = self.described(var)
        except InputError:
            return  # nothing that reads it is claimed

    def _claim(self, var: Any, value: Any) -> None:
        integers, vague = var.ty.dtype in INTEGERS, None
        refused = self._attempt(var, value)
        if refused is not None:
            self.left.append(refused)
        elif not integers:
            return
        elif var not in self.views:
            vague = f"{kind_of(value) or 'value'} of {var.name!r} is not computed from quantised values"
        else:
            vague = self._enclose(var)
            if vague is None:
                return
        self.views.pop(var, None)
        if not integers:
            return
        if kind_of(value) == "relax.quantize" and self._plain(value.args[0]) and self._quantises(var, value):
            self.needs[var], self.inside[var] = [value.args[0]], {var}
        else:
            self.left += [] if vague is None else [vague]
            self._give(var)

    def _attempt(self, var: Any, value: Any) -> str | None:
        """Read one binding; the reason why not, in which case nothing is left of it."""
        before, problems = len(self.ops), len(self.problems)
        try:
            self.import_binding(var, value)
            refused = next(iter(self.problems[problems:]), None)
        except InputError as exc:
            refused = str(exc)
        if refused is not None:
            self._operators -= {op.name for op in self.ops[before:]}
            del self.ops[before:]
        return refused

    def _plain(self, expr: Any) -> bool:
        """Whether `expr` holds floats that stand for no integers."""
        return isinstance(expr, Var) and _fixed(expr) and expr.ty.dtype == "float32" and expr not in self.views

    def _quantises(self, var: Any, call: Any) -> bool:
        """Read a quantize of floats that something else computes."""
        try:
            y = self.quantised(var, call)
            x = g.Tensor(self._names.unused(f"{var.name}.float"), y.shape, "float32")
            self.append(var, g.Quantize(self.name(var), (x,), y))
        except InputError:
            return False
        return True

    def _enclose(self, var: Any) -> str | None:
        """Note what `var` is computed from, and the bindings in between; the reason where that is not integers."""
        inside, ends, waiting = {var}, dict[Any, None](), list(operands(self.values[var]))
        while waiting:
            one = waiting.pop(0)
            if one in self.needs or one in self._outside or one not in self.values:
                ends[one] = None
            elif one not in inside:
                inside.add(one)
                waiting += operands(self.values[one])
        if wrong := [one.name for one in ends if not _fixed(one) or one.ty.dtype not in INTEGERS]:
            return f"{kind_of(self.values[var])} of {var.name!r} depends on {wrong[0]!r}, which has no quantised values"
        self.needs[var], self.inside[var] = list(ends), inside
        return None


def operands(value: Any) -> Iterator[Any]:
    """The variables in an expression of one binding, those in tuples included."""
    if isinstance(value, Var):
        yield value
    elif isinstance(value, ir.Call):
        for arg in value.args:
            yield from operands(arg)
    elif isinstance(value, ir.Tuple):
        for field in value.fields:
            yield from operands(field)
    elif isinstance(value, ir.TupleGetItem):
        yield from operands(value.tuple_value)


def _fixed(var: Any) -> bool:
    """Whether `var` is a tensor of known dtype and sizes, with one dimension or more."""
    shape = getattr(getattr(var.ty, "shape", None), "values", None)
    return bool(shape) and bool(str(var.ty.dtype)) and all(hasattr(n, "value") for n in shape)
