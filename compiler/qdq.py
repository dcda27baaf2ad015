"""Relax with quantize/dequantize pairs -> compiler/graph.py, by dataflow patterns.

Nothing may be folded before: constant folding would turn the int8 weights into float32.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from typing import Any

import numpy as np

from ..hw.errors import InputError, UnsupportedError
from . import graph as g
from .tvm_compat import from_onnx, ir, is_const, is_op, wildcard

_K = is_const()
_X = wildcard()
_DEQUANTIZED = is_op("relax.dequantize")(is_const(), is_const(), is_const())
_WEIGHT = is_op("relax.dequantize")(is_const(), is_const(), is_const())
_CONV = is_op("relax.nn.conv2d")(_X, _WEIGHT)
_TRANSPOSED = is_op("relax.permute_dims")(_WEIGHT)
_DENSE = is_op("relax.matmul")(_X, _TRANSPOSED | _WEIGHT)
_FLAT_BIAS = _DEQUANTIZED | _K
_BIAS = is_op("relax.reshape")(_FLAT_BIAS, wildcard()) | _FLAT_BIAS
_LINEAR = _CONV | _DENSE
_BIASED = is_op("relax.add")(_LINEAR, _BIAS) | is_op("relax.add")(_BIAS, _LINEAR)
_RELU = is_op("relax.nn.relu")(_BIASED | _LINEAR)
_QUANTIZED_LINEAR = is_op("relax.quantize")(_RELU | _BIASED | _LINEAR, is_const(), is_const())
_INT32 = np.iinfo(np.int32)
_ALLOWED = f"outside {_INT32.min}..{_INT32.max}"
_AVERAGE = is_op("relax.nn.avg_pool2d")(_X)
_MEAN = is_op("relax.mean")(_X)
_QUANTIZED_MEAN = is_op("relax.quantize")(_AVERAGE | _MEAN, is_const(), is_const())

# Relax operator -> the ONNX operators that it can come from, for names; others are named after the Relax operator
_SOURCES = {
    "relax.nn.conv2d": ("Conv",),
    "relax.matmul": ("Gemm", "MatMul"),
    "relax.nn.max_pool2d": ("MaxPool",),
    "relax.nn.avg_pool2d": ("AveragePool",),
    "relax.mean": ("GlobalAveragePool",),
    "relax.quantize": ("QuantizeLinear",),
    "relax.dequantize": ("DequantizeLinear",),
}


def import_relax(model: Any, name: str, nodes: list[tuple[str, str]]) -> g.Graph:
    """The graph of an ONNX `model`; `nodes` are (operator, name) of its nodes, in order.

    Raises `UnsupportedError` that lists everything that no pattern covers.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints before it raises
            function = from_onnx(model, keep_params_in_input=False)["main"]
    except Exception as exc:  # the importer raises errors of many kinds
        text = next((line.strip() for line in reversed(str(exc).splitlines()) if line.strip()), type(exc).__name__)
        raise UnsupportedError(f"{name}: TVM's ONNX importer refuses the model: {text}") from None
    return _Importer(function, [v.name for v in model.graph.output], nodes).graph(name)


class _Importer:
    """Walks the bindings of a Relax function in order and builds operators.

    `views` holds, for each variable that carries int8 values, the tensor behind it; a dequantised float variable is a
    view of the tensor that it was dequantised from. Floats between a convolution and its quantize have no view: the
    pattern that ends in the quantize covers them.
    """

    def __init__(self, function: Any, outputs: list[str], nodes: list[tuple[str, str]]):
        self.bindings: list[Any] = [b for block in function.body.blocks for b in block.bindings]
        self.calls: dict[Any, Any] = {b.var: b.value for b in self.bindings}
        self.params = list(function.params)
        body = function.body.body
        body = self.calls.get(body, body)
        self.results = list(zip(outputs, body.fields if isinstance(body, ir.Tuple) else [function.body.body]))
        self.nodes = self._assign_nodes(nodes)
        self.inputs: list[g.Tensor] = []
        self.views: dict[Any, g.Tensor] = {}
        self.ops: list[g.Op] = []
        self.problems: list[str] = []

    def _assign_nodes(self, nodes: list[tuple[str, str]]) -> dict[Any, tuple[str, str]]:
        """The ONNX nodes (operator, name) of the variables whose operators correspond one to one to nodes."""
        found: dict[Any, tuple[str, str]] = {}
        for op, sources in _SOURCES.items():
            here = [b.var for b in self.bindings if _kind(b.value) == op]
            given = [node for node in nodes if node[0] in sources]
            if len(given) == len(here):
                found |= dict(zip(here, given))
        return found

    def _node(self, var: Any) -> str:
        """How errors call the operator behind `var`."""
        kind = _kind(self.calls[var]).rsplit(".", 1)[-1]
        return f"{self.nodes[var][0] if var in self.nodes else kind} {self._name(var)!r}"

    def _name(self, var: Any) -> str:
        if var in self.nodes:
            return self.nodes[var][1]
        kind, taken = _kind(self.calls[var]).rsplit(".", 1)[-1], {op.name for op in self.ops}
        return next(name for k in itertools.count() if (name := f"{kind}{k}") not in taken)

    def graph(self, name: str) -> g.Graph:
        """The whole function as a graph."""
        for var in self.params:
            t = g.Tensor(var.name, _shape(var), "float32")
            if var.ty.dtype == "int8":
                t = self._int8_input(var)
            elif var.ty.dtype != "float32":
                self.problems.append(f"input {var.name!r} of type {var.ty.dtype}; only float32 and int8 are supported")
            self.inputs.append(t)
            self.views[var] = t
        for b in self.bindings:
            try:
                self._visit(b.var, b.value)
            except InputError as exc:
                self.problems.append(str(exc))
        outputs = [self._output(name, var) for name, var in self.results]
        if self.problems:
            raise UnsupportedError(f"{name}: {'; '.join(self.problems)}")
        return g.Graph(name, tuple(self.inputs), tuple(t for t in outputs if t), tuple(self.ops))

    def _int8_input(self, var: Any) -> g.Tensor:
        """An int8 graph input: what first dequantises it says its scale."""
        for call in self.calls.values():
            if _kind(call) == "relax.dequantize" and call.args[0].same_as(var):
                return g.Tensor(var.name, _shape(var), "int8", *_scale(call))
        self.problems.append(f"input {var.name!r} is int8, but nothing dequantises it")
        return g.Tensor(var.name, _shape(var), "int8")

    def _visit(self, var: Any, call: Any) -> None:
        kind = _kind(call)
        if kind == "relax.quantize":
            self._quantize(var, call)
            return
        x = self.views.get(call.args[0]) if kind and call.args else None
        if x is None or x.dtype != "int8":
            return
        if kind == "relax.dequantize":
            expected = (x.scale, x.zero_point)
            if _scale(call) != expected:
                self.problems.append(
                    f"{self._node(var)} has scale and zero point {_scale(call)}; its input has {expected}"
                )
            self.views[var] = x
        elif kind == "relax.reshape":
            self._add(g.Reshape, var, x, _view_of(x, var))
        elif kind == "relax.nn.max_pool2d":
            a = call.attrs
            self._add(g.MaxPool, var, x, _view_of(x, var), _ints(a.pool_size), _ints(a.strides), _ints(a.padding))

    def _add(self, cls: Any, var: Any, x: g.Tensor, y: g.Tensor, *parameters: Any, source: Any = None) -> None:
        """Append an operator named after the Relax call `source` (or `var`) and make its output the view of `var`."""
        name = self._name(var if source is None else source)
        y = g.Tensor(self._tensor_name(var, name), y.shape, y.dtype, y.scale, y.zero_point)
        self.ops.append(cls(name, (x,), y, *parameters))
        self.views[var] = y

    def _tensor_name(self, var: Any, default: str) -> str:
        """The name of an int8 output of the whole graph, else the operator's, made unlike any other tensor's."""
        name = next((name for name, result in self.results if result.same_as(var)), default)
        taken = {t.name for t in (*self.inputs, *self.views.values())}
        taken |= {other for other, result in self.results if not result.same_as(var)}
        while name in taken:
            name += ".out"
        return name

    def _quantize(self, var: Any, call: Any) -> None:
        y = g.Tensor(var.name, _shape(var), "int8", *_scale(call))
        x = self.views.get(call.args[0])
        if x is not None and x.dtype == "float32":
            self._add(g.Quantize, var, x, y)
        elif x is not None and (x.scale, x.zero_point) == (y.scale, y.zero_point):
            self.views[var] = x
        elif x is not None:
            self.problems.append(
                f"{self._node(var)} requantises from scale and zero point {x.scale, x.zero_point} to "
                f"{y.scale, y.zero_point}, which is supported only after a convolution, dense layer or mean"
            )
        elif match := _QUANTIZED_LINEAR.extract_matched_expr(call, self.calls):
            self._linear(var, match, y)
        elif match := _QUANTIZED_MEAN.extract_matched_expr(call, self.calls):
            self._average(var, match, y)
        # else the problem lies further up, where it is reported

    def _var(self, call: Any) -> Any:
        """The variable bound to `call`."""
        return next(b.var for b in self.bindings if b.value.same_as(call))

    def _linear(self, var: Any, match: Any, y: g.Tensor) -> None:
        conv = _CONV in match
        call = match[_CONV if conv else _DENSE]
        x = self.views.get(call.args[0])
        if x is None:
            return
        node = self._node(self._var(call))
        weight, scales = _weights(match, node, transpose=not conv and _TRANSPOSED not in match)
        bias = _bias(match, node, np.float64(x.scale) * scales.astype(np.float64))
        low = max(-128, y.zero_point) if _RELU in match else -128
        if conv:
            a = call.attrs
            geometry = (_ints(a.strides), _ints(a.padding), _ints(a.dilation))
            self._add(g.QConv2d, var, x, y, weight, scales, bias, low, 127, *geometry, source=self._var(call))
        else:
            self._add(g.QDense, var, x, y, weight, scales, bias, low, 127, source=self._var(call))
        _check_range(self.ops[-1], node)

    def _average(self, var: Any, match: Any, y: g.Tensor) -> None:
        call = match[_AVERAGE if _AVERAGE in match else _MEAN]
        x = self.views.get(call.args[0])
        if x is None:
            return
        node = self._node(self._var(call))
        if _AVERAGE in match:
            geometry = (_ints(call.attrs.pool_size), _ints(call.attrs.strides), _ints(call.attrs.padding))
        elif list(_ints(call.attrs.axis)) == [2, 3] and call.attrs.keepdims:
            geometry = (x.shape[2:], (1, 1))
        else:
            axes = ", ".join(map(str, _ints(call.attrs.axis)))
            self.problems.append(f"{node} is a mean over axes {axes}; only the mean of whole images is supported")
            return
        self._add(g.AveragePool, var, x, y, *geometry, source=self._var(call))
        _check_range(self.ops[-1], node)

    def _output(self, name: str, var: Any) -> g.Tensor | None:
        x = self.views.get(var)
        if x is None or x in self.inputs:
            if not self.problems:
                self.problems.append(f"output {name!r} does not come from quantised operators")
            return None
        if var.ty.dtype == "int8" and x.name == name:
            return x
        if var.ty.dtype == "int8":  # another tensor's values under a second name
            y = g.Tensor(name, x.shape, "int8", x.scale, x.zero_point)
            self.ops.append(g.Reshape(f"{name}.copy", (x,), y))
            return y
        if var.ty.dtype != "float32":
            self.problems.append(f"output {name!r} is {var.ty.dtype}; only float32 and int8 are supported")
            return None
        y = g.Tensor(name, x.shape, "float32")
        self.ops.append(g.Dequantize(f"{name}.dequantize", (x,), y))
        return y


def _kind(value: Any) -> str:
    """The name of the Relax operator that `value` calls; empty where it calls none."""
    return getattr(value.op, "name", "") if isinstance(value, ir.Call) else ""


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in var.ty.shape)


def _view_of(x: g.Tensor, var: Any) -> g.Tensor:
    return g.Tensor(x.name, _shape(var), "int8", x.scale, x.zero_point)


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _array(expr: Any) -> np.ndarray:
    """The value of a constant."""
    return np.asarray(expr.value.numpy() if hasattr(expr.value, "numpy") else expr.value)


def _scale(call: Any) -> tuple[float, int]:
    """(scale, zero point) of a quantize or dequantize of activations, as int8: uint8 is int8 moved by 128."""
    scale, zero = _array(call.args[1]), _array(call.args[2])
    return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) - (128 if zero.dtype == np.uint8 else 0)


def _weights(match: Any, node: str, transpose: bool) -> tuple[np.ndarray, np.ndarray]:
    """(int8 weights with the output channel first, one float32 scale per output channel)."""
    call = match[_WEIGHT]
    weight, scale, zero = (_array(a) for a in call.args)
    if weight.dtype == np.uint8:
        weight, zero = (weight.astype(np.int16) - 128).astype(np.int8), zero.astype(np.int16) - 128
    if zero.any():
        raise InputError(f"{node} has weights with a zero point other than 0 (uint8: 128), which is not supported")
    if transpose:
        weight = weight.T
    axis = int(call.attrs.axis) % weight.ndim
    if scale.size > 1 and axis != (1 if transpose else 0):
        raise InputError(f"{node} has weights with one scale per index of axis {axis}, not per output channel")
    scales = np.broadcast_to(scale.reshape(-1).astype(np.float32), (len(weight),))
    return np.ascontiguousarray(weight), np.ascontiguousarray(scales)


def _bias(match: Any, node: str, scales: np.ndarray) -> np.ndarray:
    """int32 biases in units of `scales`, float64 (O,), those of the accumulators.

    Raises `InputError` where one does not fit.
    """
    if _BIASED not in match:
        return np.zeros(len(scales), np.int32)
    if _DEQUANTIZED in match:
        bias, scale, zero = (_array(a).reshape(-1) for a in match[_DEQUANTIZED].args)
        if bias.dtype == np.int32 and not zero.any() and np.allclose(scale, scales, rtol=1e-5, atol=0):
            return np.broadcast_to(bias, scales.shape).copy()
        real = (bias.astype(np.float64) - zero) * scale
    else:
        real = _array(match[_K]).reshape(-1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        units = np.broadcast_to(np.rint(real / scales), scales.shape)
    wrong = np.flatnonzero(~((units >= _INT32.min) & (units <= _INT32.max)))
    if wrong.size:
        k = wrong[0]
        raise InputError(
            f"{node} has bias {np.broadcast_to(real, scales.shape)[k]:g} for output channel {k}: {units[k]:g} times "
            f"the accumulator's scale {scales[k]:g}, {_ALLOWED}"
        )
    return units.astype(np.int32)


def _check_range(op: g.Op, node: str) -> None:
    """Raise `InputError` where the operator's integers can leave int32 before they are scaled down.

    The rounding contracts shift an accumulator left, in int32, by the exponent of a scale of 1 or more.
    """
    if isinstance(op, g.AveragePool):
        pixels = math.prod(op.kernel)
        reach = np.array([[-128 - op.x.zero_point], [127 - op.x.zero_point]]) * pixels
    else:
        assert isinstance(op, g.Linear)
        weight = op.weight.reshape(len(op.weight), -1).astype(np.int64)
        folded = op.bias - op.x.zero_point * weight.sum(1)
        wrong = np.flatnonzero((folded < _INT32.min) | (folded > _INT32.max))
        if wrong.size:
            k = wrong[0]
            raise InputError(
                f"{node} has bias {op.bias[k]} for output channel {k}: {folded[k]} with the input's zero point "
                f"{op.x.zero_point} folded in, {_ALLOWED}"
            )
        ends = np.array([-128, 127]).reshape(2, 1, 1) - op.x.zero_point  # 0, that of padding, lies between them
        products = weight * ends
        reach = op.bias + np.stack([products.min(0).sum(1), products.max(0).sum(1)])
    shift = np.maximum(op.multipliers[1], 0)
    largest = np.where(shift > 0, np.abs(reach).max(0), 0)
    wrong = np.flatnonzero(largest > np.int64(_INT32.max) >> shift)
    if wrong.size:
        k = wrong[0]
        shift = np.broadcast_to(shift, largest.shape)
        raise InputError(
            f"{node} scales accumulators of up to {largest[k]} by 2**{shift[k] - 1} or more to output scale "
            f"{op.output.scale:g}; at most {_INT32.max >> shift[k]} are allowed; give the output a larger scale"
        )
