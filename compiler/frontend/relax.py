"""Relax with quantize/dequantize pairs, as TVM's importers make it -> compiler/graph/.

Constants are not folded before: that would convert the int8 weights to float32. A quantize ends a float expression,
which becomes one operator, a relu or clip on top included (compiler/frontend/relax_operators.py: layers by dataflow
patterns, others by the operator's name). Operators that only move values are converted one by one. Images are NCHW, or
NHWC as TVM's importer of .tflite files leaves them: element-wise operators between those are computed on NCHW.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...hw.errors import InputError, UnsupportedError
from .. import graph as g
from ..graph import Names, ranges
from ..tvm_compat import Const, Function, Var, ir, relax
from .core import Builder, like
from .moves import TO_NCHW, TO_NHWC, turned
from .relax_operators import COMPUTE, INTEGER, MOVE, Call, Expr, array, linear, split
from .source import SINGLE
from .values import steps


def fold_constants(bindings: Sequence[Expr]) -> dict[Var, Expr]:
    """The value of each variable; constants that are moved before or after a dequantize are moved here.

    TVM's importers leave weights that operators transpose or reshape.
    """
    values: dict[Var, Expr] = {}
    for b in bindings:
        values[b.var] = _folded(b.value, values) if isinstance(b.value, ir.Call) else b.value
    return values


def _folded(call: Call, known: dict[Var, Expr]) -> Expr:
    kind = getattr(call.op, "name", "")
    operand: Expr = call.args[0] if call.args else None
    operand = known.get(operand, operand)
    if kind == "relax.dequantize" and _is_constant(operand):
        return call if operand is call.args[0] else _dequantize(call, operand, int(call.attrs.axis))
    if kind == "relax.permute_dims" and _is_constant(operand):
        value = operand.value.numpy()
        axes = None if call.attrs.axes is None else [int(k) for k in call.attrs.axes]
        return relax.const(np.ascontiguousarray(value.transpose(axes)))
    if kind != "relax.reshape" or not all(hasattr(n, "value") for n in call.ty.shape):
        return call
    shape = tuple(int(n) for n in call.ty.shape)
    if _is_constant(operand):
        return relax.const(operand.value.numpy().reshape(shape))
    if getattr(getattr(operand, "op", None), "name", "") == "relax.dequantize" and _is_constant(operand.args[0]):
        value = operand.args[0].value.numpy()
        axis = _same_axis(value.shape, shape, int(operand.attrs.axis) % max(1, value.ndim))
        if axis is not None:
            return _dequantize(operand, relax.const(value.reshape(shape)), axis)
    return call


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, ir.GenericConst) and hasattr(expr.value, "numpy")


def _dequantize(call: Call, value: Const, axis: int) -> Expr:
    """`call` of the constant `value`, whose scales are along `axis`."""
    made = relax.op.dequantize(value, call.args[1], call.args[2], axis=axis, out_dtype=call.attrs.out_dtype)
    return relax.BlockBuilder().normalize(made)  # which gives it its type


def _same_axis(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """The axis of the reshaped array that has the indices of `axis`; None if none has."""
    if not before:
        return None
    ahead = math.prod(before[:axis])
    return next((k for k, n in enumerate(after) if n == before[axis] and math.prod(after[:k]) == ahead), None)


def sunk(ops: Sequence[g.Operator]) -> tuple[g.Operator, ...]:
    """`ops` with element-wise operators moved before the transpositions of their operands from NCHW to NHWC.

    Transpositions without a reader, and pairs that cancel, are removed later (compiler/graph/simplify.py).
    """
    sources: dict[str, g.Tensor] = {}  # tensor NHWC -> the one NCHW that it was made of
    names = Names(name for op in ops for name in (op.name, op.output.name))
    moved_ops: list[g.Operator] = []
    for op in ops:
        parts = [part for t in op.inputs if (part := _moved(t, sources)) is not None]
        if isinstance(op, g.Transpose) and op.relayout and op.axes == TO_NHWC:
            sources[op.output.name] = op.x
        y, moved = op.output, None
        if len(parts) == len(op.inputs) and len(y.shape) == 4 and y.dtype == "int8":
            inner = replace(y, name=names.unused(f"{y.name}.nchw"), shape=tuple(y.shape[k] for k in TO_NCHW))
            moved = op.permuted(tuple(parts), inner, TO_NCHW)
        if moved is None:
            moved_ops.append(op)
            continue
        moved_ops += moved, g.Transpose(names.unused(f"{op.name}.nhwc"), (moved.output,), y, TO_NHWC, True)
        sources[y.name] = moved.output
    return tuple(moved_ops)


def _moved(t: g.Tensor, sources: dict[str, g.Tensor]) -> g.Tensor | None:
    """`t` in NCHW if it is a transposed NCHW tensor or a constant; None where it needs a transposition."""
    if t.data is None or len(t.shape) != 4:
        return sources.get(t.name)
    data = np.ascontiguousarray(t.data.transpose(TO_NCHW))
    return replace(t, shape=data.shape, data=data)


INTEGERS = ("int8", "uint8")  # of activations
_LOWERED = re.compile(r"(maximum|minimum)\d*")  # functions that TVM's importers write in TIR


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a quantize: tensor `y`, computed by the float `call` of `source`, clamped to `clamp`.

    `var` is the quantize's variable.
    """

    var: Var
    y: g.Tensor
    source: Var
    call: Call
    clamp: tuple[int, int]


class RelaxImporter(Builder):
    """Walks the bindings of a Relax function in order and builds operators.

    `views` maps each variable of int8 values to its tensor, and a dequantised float variable to the tensor that it was
    dequantised from. Floats between a convolution and its quantize have no view.
    """

    def __init__(self, function: Function, outputs: list[str]):
        super().__init__(outputs)
        self.bindings: list[Expr] = [b for block in function.body.blocks for b in block.bindings]
        self.calls: dict[Var, Expr] = fold_constants(self.bindings)
        self.values_of = ir.Map(self.calls)  # as TVM takes it, which would convert all of a dict for each match
        self.params = list(function.params)
        body = function.body.body
        body = self.calls.get(body, body)
        self.results = list(zip(outputs, body.fields if isinstance(body, ir.Tuple) else [function.body.body]))
        self.views: dict[Var, g.Tensor] = {}
        self.problems: list[str] = []
        self._operators: set[str] = set()  # their names
        self._names = self.tensors  # of operators, too
        self._counts: Counter[str] = Counter()  # of each kind of operator, the number that was given last

    def node(self, var: Var) -> str:
        """Kind and name of the operator that computes `var`, for errors."""
        return f"{kind_of(self.calls[var]).rsplit('.', 1)[-1]} {self.name(var)!r}"

    def name(self, var: Var) -> str:
        """A free name for the operator that computes `var`: its kind and a number."""
        kind = kind_of(self.calls[var]).rsplit(".", 1)[-1] or "part"
        while (name := f"{kind}{self._counts[kind]}") in self._operators:
            self._counts[kind] += 1
        return name

    def variable(self, call: Call) -> Expr:
        """The variable bound to `call`."""
        return next(b.var for b in self.bindings if b.value.same_as(call))

    def graph(self, name: str) -> g.Graph:
        """The whole function as a graph."""
        for var in self.params:
            self._input(var)
        for b in self.bindings:
            try:
                self.import_binding(b.var, b.value)
            except InputError as exc:
                self.problems.append(str(exc))
        outputs = [self._output(name, var) for name, var in self.results]
        if self.problems:
            raise UnsupportedError(f"{name}: {'; '.join(self.problems)}")
        return g.Graph(name, tuple(self.inputs), tuple(t for t in outputs if t), sunk(self.ops), contract=SINGLE)

    def _input(self, var: Var) -> None:
        """Append an input of the graph; integers have the scale of the first operator that dequantises them."""
        t = g.Tensor(var.name, _shape(var), "float32")
        self._names.add(t.name)
        if var.ty.dtype in INTEGERS:
            t = replace(t, dtype="int8")
            try:
                t = self.described(var)
            except InputError as exc:
                self.problems.append(f"input {exc}")
        elif var.ty.dtype != "float32":
            known = "only float32, int8 and uint8 are supported"
            self.problems.append(f"input {var.name!r} of type {var.ty.dtype}; {known}")
        self.views[var] = t
        if var.ty.dtype == "uint8":
            outer = replace(t, dtype="uint8", zero_point=t.zero_point + 128)
            self.views[var] = self.add(g.Recode, (outer,), replace(t, name=f"{t.name}.int8"))
            t = outer
        self.inputs.append(t)

    def described(self, var: Var) -> g.Tensor:
        """The tensor of integers that `var` is, with the scale with which it is dequantised, maybe after it moved.

        Raises `InputError` where nothing dequantises it.
        """
        aliases = {var}
        for b in self.bindings:
            operands = _operands(b.value) if isinstance(b.value, ir.Call) else (b.value,)
            if not operands or operands[0] not in aliases:
                continue
            if kind_of(b.value) == "relax.dequantize":
                return g.Tensor(var.name, _shape(var), "int8", *_scale(b.value, var.ty.dtype))
            if kind_of(b.value) in (*MOVE, "relax.clip") or not isinstance(b.value, ir.Call):
                aliases.add(b.var)
        raise InputError(f"{var.name!r} is {var.ty.dtype}, but nothing dequantises it")

    def import_binding(self, var: Var, call: Call) -> None:
        """Append the operators of a binding that computes integers. Raises `InputError`."""
        kind = kind_of(call)
        if kind == "relax.quantize":
            self._quantize(var, call)
            return
        if call in self.views:  # a second name
            self.views[var] = self.views[call]
            return
        if isinstance(call, ir.TupleGetItem):
            parts: Expr = self.calls.get(call.tuple_value)
            if isinstance(parts, ir.Tuple) and parts.fields[call.index] in self.views:
                self.views[var] = self.views[parts.fields[call.index]]
            x = self.views.get(parts.args[0]) if kind_of(parts) == "relax.split" else None
            if x is not None:
                split(self, var, parts, call.index, x)
            return
        if kind in INTEGER and var.ty.dtype in INTEGERS:
            INTEGER[kind](self, var, call)
            return
        operands: tuple = _operands(call) if kind else ()
        x = self.views.get(operands[0]) if operands else None
        if x is None or x.dtype != "int8":
            return
        if kind == "relax.dequantize":
            scale, expected = _scale(call, operands[0].ty.dtype), (x.scale, x.zero_point)
            if scale != expected:
                self.problems.append(f"{self.node(var)} has scale and zero point {scale}; its input has {expected}")
            if var.ty.dtype != "float32":
                raise InputError(f"{self.node(var)} makes {var.ty.dtype} of integers; only float32 is supported")
            self.views[var] = x
        elif kind in MOVE:
            MOVE[kind](self, var, call, x)

    def _quantize(self, var: Var, call: Call) -> None:
        y = self.quantised(var, call)
        source, low, high = call.args[0], -math.inf, math.inf
        while source in self.calls and (inner := self._clamped(self.calls[source])):
            if math.isnan(inner[1]) or math.isnan(inner[2]):
                raise InputError(f"{self.node(source)} clamps to {inner[1]:g}..{inner[2]:g}, which are no numbers")
            source, low, high = inner[0], max(low, min(inner[1], high)), min(high, max(inner[2], low))
        x, before = self.views.get(source), len(self.ops)
        clamp = steps(low, y), steps(high, y)
        if x is not None and x.dtype == "float32" and clamp == (-128, 127):
            self.append(var, g.Quantize(self.name(var), (x,), y))
        elif x is not None and (x.dtype, x.scale, x.zero_point, *clamp) == ("int8", y.scale, y.zero_point, -128, 127):
            self.views[var] = x
        elif x is not None and x.dtype == "int8":
            top = call.args[0] if source is not call.args[0] else var
            node = self.node(top)
            self.append(var, g.NearestRequantize(self.name(top), (x,), y, *clamp))
            self.check_numbers(before, node)
        elif source in self.calls:
            result = Result(var, y, source, self.calls[source], clamp)
            kind = kind_of(result.call)
            if not linear(self, result) and kind in COMPUTE:
                node = self.node(source)
                COMPUTE[kind](self, result)
                self.check_numbers(before, node)
        # else the problem is further up and reported there

    def quantised(self, var: Var, call: Call) -> g.Tensor:
        """The tensor that a quantize makes. Raises `InputError` for other types than int8 and uint8."""
        if var.ty.dtype not in INTEGERS:
            raise InputError(f"{self.node(var)} makes {var.ty.dtype}; only {' and '.join(INTEGERS)} are supported")
        return g.Tensor(var.name, _shape(var), "int8", *_scale(call, var.ty.dtype))

    def _clamped(self, call: Call) -> tuple[Var, float, float] | None:
        """(operand, low, high) of a relu or clip, None of anything else."""
        kind = kind_of(call)
        if kind == "relax.nn.relu":
            return call.args[0], 0.0, math.inf
        if kind == "relax.clip":
            return call.args[0], _number(call.args[1]), _number(call.args[2])
        if kind in ("maximum", "minimum"):
            operand, bound = _operands(call)
            value = self._bound(bound)
            if value is not None:
                return (operand, value, math.inf) if kind == "maximum" else (operand, -math.inf, value)
        return None

    def _bound(self, expr: Expr) -> float | None:
        """The constant bound of a clip, which TVM's importer guards against NaN by a `where`."""
        call = self.calls.get(expr, expr)
        if kind_of(call) == "relax.where":
            call = call.args[2]
        return _number(call) if hasattr(call, "value") else None

    def operand(self, var: Var) -> g.Tensor | None:
        """The int8 tensor of an operand that is a view, or a dequantised constant."""
        call: Call = self.calls.get(var)
        if var not in self.views and kind_of(call) == "relax.dequantize" and hasattr(call.args[0], "value"):
            data = array(call.args[0])
            if data.dtype == np.uint8:
                data = (data.astype(np.int16) - 128).astype(np.int8)
            name = self._names.unused(f"{self.name(var)}.constant")
            self.views[var] = g.Tensor(name, data.shape, "int8", *_scale(call, call.args[0].ty.dtype), data)
        return self.views.get(var)

    def append(self, var: Var, op: g.Operator) -> None:
        """Append the operator whose output is `var`."""
        named = (name for name, result in self.results if result.same_as(var) and var.ty.dtype == "int8")
        name = next(named, "") or self._names.unused(op.name if op.name not in self._names else f"{op.name}.out")
        self.views[var] = self.emit(replace(op, output=replace(op.output, name=name)))

    def emit(self, op: g.Operator) -> g.Tensor:
        """Append an operator whose output has a name already, and return that output."""
        self._operators.add(op.name)
        self._names.add(op.name)
        return super().emit(op)

    def check_numbers(self, before: int, node: str) -> None:
        """Raise `InputError`, which names `node`, if integers of operators from index `before` on can leave int32."""
        for op in self.ops[before:]:
            if text := ranges.problem(op):
                raise InputError(f"{node} {text}")

    def move(self, cls: type[g.Operator], var: Var, x: g.Tensor, *parameters: object) -> None:
        """Append an operator that keeps the scale of its one tensor; the result has the shape of `var`."""
        self.append(var, cls(self.name(var), (x,), replace(x, shape=_shape(var), data=None), *parameters))

    def place(
        self, var: Var, layout: str, x: g.Tensor, y: g.Tensor, make: Callable[[g.Tensor, g.Tensor], g.Operator]
    ) -> None:
        """Append `make(x, y)`, an operator on images NCHW, where `x` and `y` are images of `layout`.

        Raises `InputError` for a layout that is neither NCHW nor NHWC.
        """
        if layout == "NCHW":
            self.append(var, make(x, y))
            return
        if layout != "NHWC":
            raise InputError(f"{self.node(var)} has images of layout {layout}; only NCHW and NHWC are supported")
        inner = turned(self, f"{x.name}.nchw", x, TO_NCHW, True)
        op = make(inner, like(y, self.unused(f"{y.name}.nchw"), [y.shape[k] for k in TO_NCHW]))
        self.append(var, g.Transpose(f"{op.name}.nhwc", (self.emit(op),), y, TO_NHWC, True))

    def rescaled(self, name: str, x: g.Tensor, y: g.Tensor) -> g.Tensor:
        """`x` requantised as `y`; `x` itself if it already is."""
        if (x.scale, x.zero_point) == (y.scale, y.zero_point):
            return x
        return self.add(g.NearestRequantize, (x,), replace(y, name=name, shape=x.shape))

    def _output(self, name: str, var: Var) -> g.Tensor | None:
        x = self.views.get(var)
        if x is None or x in self.inputs:
            if not self.problems:
                self.problems.append(f"output {name!r} does not come from quantised operators")
            return None
        if var.ty.dtype == "int8" and x.name == name:
            return x
        if var.ty.dtype == "int8":  # another tensor's values under a second name
            return self.emit(g.Reshape(f"{name}.copy", (x,), like(x, name, x.shape)))
        if var.ty.dtype == "uint8":
            y = g.Tensor(name, x.shape, "uint8", x.scale, x.zero_point + 128)
            return self.emit(g.Recode(f"{name}.recode", (x,), y))
        if var.ty.dtype != "float32":
            self.problems.append(f"output {name!r} is {var.ty.dtype}; only float32, int8 and uint8 are supported")
            return None
        y = g.Tensor(name, x.shape, "float32")
        return self.emit(g.Dequantize(f"{name}.dequantize", (x,), y))


def kind_of(value: Expr) -> str:
    """The name of the Relax operator that `value` calls, or of the function in TIR; empty for other values."""
    if not isinstance(value, ir.Call):
        return ""
    name = getattr(value.op, "name", "")
    if name == "relax.call_tir" and (match := _LOWERED.fullmatch(value.args[0].name_hint)):
        return match[1]
    return name


def _operands(call: Call) -> tuple:
    """The tensors that a call takes."""
    return tuple(call.args[1].fields) if kind_of(call) in ("maximum", "minimum") else tuple(call.args)


def _shape(var: Var) -> tuple[int, ...]:
    return tuple(int(n) for n in var.ty.shape)


def _number(expr: Expr) -> float:
    return float(array(expr).reshape(-1)[0])


def _scale(call: Call, dtype: str) -> tuple[float, int]:
    """(scale, zero point) of a quantize or dequantize of activations of `dtype`, as int8: uint8 is int8 moved by 128.

    Raises `InputError` unless scale and zero point are constants of one element.
    """
    for what, expr in (("scale", call.args[1]), ("zero point", call.args[2])):
        if not hasattr(expr, "value"):
            raise InputError(f"{kind_of(call)} has a {what} that is no constant; activations have one, known before")
        if array(expr).size != 1:
            raise InputError(f"{kind_of(call)} has {array(expr).size} values of {what}; activations have one")
    zero = int(array(call.args[2]).reshape(-1)[0])
    return _number(call.args[1]), zero - (128 if dtype == "uint8" else 0)
