"""Relax functions with quantize and dequantize pairs, as TVM's importers make them -> compiler/graph/.

Each operator of Relax becomes a node of ONNX by its row of `TRANSLATIONS`; the importer of ONNX files does the rest.
Images and weights in other layouts than NCHW and OIHW are transposed. ONNX has no words for two facts, which the graph
gets afterwards: the roundings of .tflite files, and which transpositions are changes of layout.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ...hw.errors import InputError, UnsupportedError
from .. import graph as g
from ..graph import Names
from ..tvm_compat import Var, ir
from .moves import TO_NCHW, TO_NHWC
from .onnx.importer import Importer
from .onnx.nodes import Inconsistent
from .source import one_line
from .values import Weights

INTEGERS = ("int8", "uint8")  # of activations
_OPSET = 21
_READ_LATER = (
    "relax.isnan",
    "relax.split",
    "relax.where",
)  # by the parts of a split, and by clips, whose bounds they guard
_LOWERED = re.compile(r"(maximum|minimum)\d*")  # functions that TVM's importers write in TIR
Expr = Any  # an expression of TVM, whose classes have no types
Parameters = tuple[np.ndarray, np.ndarray]  # scale and zero point


def import_relax(function: Expr, outputs: Sequence[str], name: str) -> g.Graph:
    """The graph of a Relax function; its inputs have the names of the parameters.

    Raises `UnsupportedError` that lists all operators and types that are not supported.
    """
    bindings = [b for block in function.body.blocks for b in block.bindings]
    body = next((b.value for b in bindings if b.var.same_as(function.body.body)), function.body.body)
    results = body.fields if isinstance(body, ir.Tuple) else [function.body.body]
    inputs = [(var.name, var) for var in function.params]
    return graph_of(bindings, inputs, list(zip(outputs, results)), parameters_of(bindings), name)


def graph_of(
    bindings: Sequence[Expr],
    inputs: Sequence[tuple[str, Expr]],
    outputs: Sequence[tuple[str, Expr]],
    parameters: dict[Expr, Parameters],
    name: str,
) -> g.Graph:
    """The graph of `bindings`; inputs and outputs are pairs of a name and a variable.

    `parameters` has the quantisation of variables that hold integers (`parameters_of`). Raises as `import_relax`.
    """
    translation = Translation(bindings, outputs, parameters)
    model = translation.model(inputs)
    problems = translation.problems
    if not problems:
        importer = Importer(model)
        importer.integer_means = translation.means
        try:
            graph = importer.graph(name)
        except Inconsistent as exc:
            raise UnsupportedError(f"{name}: shapes or types are inconsistent ({one_line(exc)})") from None
        if graph is not None:
            return replace(graph, ops=sunk([translation.finished(op) for op in graph.ops]))
        problems = [*map(str, importer.problems), *importer.ends]
    raise UnsupportedError(f"{name}: {'; '.join(problems)}")


def parameters_of(bindings: Sequence[Expr]) -> dict[Expr, Parameters]:
    """The quantisation of variables that hold integers, by the quantize or dequantize before or after they moved."""
    calls = {b.var: b.value for b in bindings}
    found: dict[Expr, Parameters] = {}
    for b in (*bindings, *reversed(bindings), *bindings):
        kind, source = kind_of(b.value), _source(b.value, calls)
        if kind in ("relax.quantize", "relax.dequantize"):
            if all(hasattr(arg, "value") for arg in b.value.args[1:3]):
                scale, zero = map(array_of, b.value.args[1:3])
                found.setdefault(b.var if kind == "relax.quantize" else source, (scale, zero))
        elif source is not None and str(getattr(b.var.ty, "dtype", "")) in INTEGERS:
            for known, other in ((source, b.var), (b.var, source)):
                if known in found:
                    found.setdefault(other, found[known])
    return found


def _source(value: Expr, calls: dict[Expr, Expr]) -> Expr:
    """The tensor whose values an expression moves or takes first; None where it has none."""
    if isinstance(value, ir.TupleGetItem):
        value = calls.get(value.tuple_value, value.tuple_value)
        return value.args[0] if kind_of(value) == "relax.split" else None
    if (pool := _integer_pool(value, calls)) is not None:
        return calls[pool.args[0]].args[0]
    if not isinstance(value, ir.Call):
        return value
    return value.args[0] if value.args else None


def _integer_pool(value: Expr, calls: dict[Expr, Expr]) -> Expr:
    """The mean of windows of int32 that `value` converts back to int8, as TVM's importer of .tflite files has it."""
    pool: Expr = calls.get(value.args[0]) if kind_of(value) == "relax.astype" else None
    wide: Expr = calls.get(pool.args[0]) if kind_of(pool) == "relax.nn.avg_pool2d" else None
    return pool if kind_of(wide) == "relax.astype" else None


class Translation:
    """The ONNX model in the making.

    `names` has the tensor of the model for each expression, `constants` arrays and dequantised constants, which are
    moved here, and `problems` the reasons why operators have no translation.
    """

    def __init__(
        self, bindings: Sequence[Expr], outputs: Sequence[tuple[str, Expr]], parameters: dict[Expr, Parameters]
    ):
        self.bindings, self.outputs, self.parameters = bindings, outputs, parameters
        self.calls: dict[Expr, Expr] = {b.var: b.value for b in bindings}
        self.readers: dict[Expr, list[Expr]] = {}  # the variables that are computed from each
        for b in bindings:
            for arg in arguments(b.value):
                self.readers.setdefault(arg, []).append(b.var)
        self.names: dict[Expr, str] = {}
        self.constants: dict[Expr, np.ndarray | Weights] = {}
        self.problems: list[str] = []
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._tensors = Names(name for name, _ in outputs)
        self.counts: Counter[str] = Counter()  # of nodes, by their kind
        self._refused: set[Expr] = set()
        self._biased: dict[Expr, Expr] = {}  # sums with biases -> the layers that have these
        self._layouts: set[str] = set()  # nodes that change the layout of images
        self._rounded: set[str] = set()  # layers that round the product of their scales to float32
        self.means: dict[str, bool] = {}  # means of integers, and whether ties go up

    def model(self, inputs: Sequence[tuple[str, Expr]]) -> ModelProto:
        """The model with those `inputs`."""
        for name, var in inputs:
            self._tensors.add(name)
            self.names[var] = name
            self._input(name, var)
        for b in self.bindings:
            self._bind(b.var, b.value)
        for name, expr in self.outputs:
            if expr not in self._refused:
                self._output(name, expr)
        given, written = ([_info(name, var) for name, var in pairs] for pairs in (inputs, self.outputs))
        graph = helper.make_graph(self._nodes, "relax", given, written, self._initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])

    def finished(self, op: g.Operator) -> g.Operator:
        """An operator of the graph with the facts that ONNX does not have."""
        if isinstance(op, g.Transpose) and op.name in self._layouts:
            return replace(op, relayout=True)
        if isinstance(op, g.Linear) and op.name in self._rounded:
            return replace(op, float32_scale=True)
        return op

    def _input(self, name: str, var: Expr) -> None:
        """Check an input. Integers get their scale here, since they may move before they are dequantised."""
        dtype = str(var.ty.dtype)
        if dtype in INTEGERS and var in self.parameters:
            self.names[var] = self.quantised(self.real(var), var)
        elif dtype in INTEGERS:
            self._refuse(var, f"input {name!r} is {dtype}, but nothing dequantises it")
        elif dtype != "float32":
            self._refuse(var, f"input {name!r} of type {dtype}; only float32, int8 and uint8 are supported")

    def _output(self, name: str, expr: Expr) -> None:
        """Give a result its name: to its tensor, or, where that is an end of the graph already, to a copy."""
        tensor = self.tensor(expr)
        node = next((n for n in self._nodes if n.output[0] == tensor), None)
        if node is None or any(tensor == other for other, _ in self.outputs):
            self._nodes.append(helper.make_node("Identity", [tensor], [name], f"{name}.copy"))
            return
        node.output[0] = name
        for node in self._nodes:
            node.input[:] = [name if t == tensor else t for t in node.input]
        self.names = {key: name if t == tensor else t for key, t in self.names.items()}

    def _refuse(self, var: Expr, why: str) -> None:
        self.problems.append(why)
        self._refused.add(var)

    def _bind(self, var: Expr, value: Expr) -> None:
        kind = kind_of(value)
        if isinstance(value, ir.Tuple) or kind in _READ_LATER:
            return
        if kind in ("relax.astype", "relax.nn.avg_pool2d") and var.ty.dtype == "int32":
            return  # parts of a mean of integers
        if any(arg in self._refused for arg in arguments(value)):
            self._refused.add(var)
            return
        try:
            if (moved := self._moved(value)) is not None:
                self.constants[var] = moved
            elif isinstance(value, ir.TupleGetItem):
                parts = self.calls.get(value.tuple_value, value.tuple_value)
                split = kind_of(parts) == "relax.split"
                self.names[var] = self._part(parts, value.index) if split else self.tensor(parts.fields[value.index])
            elif not isinstance(value, ir.Call):
                self.names[var] = self.tensor(value)
            elif var in self._biased:
                self.names[var] = self.names[self._biased[var]]
            elif kind in TRANSLATIONS:
                self.names[var] = TRANSLATIONS[kind](self, value, var)
            else:
                raise InputError("is not supported")
        except InputError as exc:
            self._refuse(var, f"{kind or 'value'} of {var.name!r} {exc}")

    def known(self, expr: Expr) -> np.ndarray | Weights | None:
        """The value of a constant, or the integers that are dequantised; None of other expressions."""
        return array_of(expr) if hasattr(expr, "value") else self.constants.get(expr)

    def _moved(self, value: Expr) -> np.ndarray | Weights | None:
        """The constant that an expression gives by moving or dequantising another one; None of other expressions."""
        kind, x = kind_of(value), self.known(value.args[0]) if isinstance(value, ir.Call) and value.args else None
        if x is None:
            return None
        if kind == "relax.dequantize" and isinstance(x, np.ndarray):
            scale, zero = _parameters(value)
            axis = int(value.attrs.axis) % max(1, x.ndim) if scale.size > 1 else 0
            return Weights(x.shape, x, scale.astype(np.float32).reshape(-1), zero.reshape(-1), axis)
        values = x if isinstance(x, np.ndarray) else x.integers
        if kind == "relax.permute_dims":
            perm = _perm(value)
            values, axis = values.transpose(perm), perm.index(x.axis) if isinstance(x, Weights) else 0
        elif TRANSLATIONS.get(kind) is _shaped:
            shape = tuple(ints(value.ty.shape))
            axis = _same_axis(values.shape, shape, x.axis) if isinstance(x, Weights) and x.scale.size > 1 else 0
            values = values.reshape(shape)
        else:
            return None
        if isinstance(x, np.ndarray) or axis is None:
            return values if axis is not None else None
        return replace(x, shape=values.shape, integers=values, axis=axis)

    def constant(self, values: object, dtype: str = "") -> str:
        """The name of a constant tensor of `values`."""
        name, array = self._tensors.unused("constant"), np.asarray(values, dtype or None, order="C")
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def tensor(self, expr: Expr) -> str:
        """The name of the tensor that an expression is. Raises `InputError` for one that is none."""
        if expr not in self.names:
            value = self.known(expr)
            if value is None:
                raise InputError("reads a value of a type that is not supported")
            self.names[expr] = self.constant(value) if isinstance(value, np.ndarray) else self._dequantised(value)
        return self.names[expr]

    def _dequantised(self, weights: Weights) -> str:
        shape = (-1,) if weights.scale.size > 1 else ()
        parameters = weights.scale, weights.zero.astype(weights.integers.dtype)
        if weights.zero.size < weights.scale.size:
            parameters = weights.scale, np.broadcast_to(parameters[1], weights.scale.shape)
        tensors = [self.constant(weights.integers), *(self.constant(a.reshape(shape)) for a in parameters)]
        return self.emit("DequantizeLinear", tensors, "dequantize", axis=weights.axis)

    def emit(self, op: str, tensors: Iterable[str], kind: str, **attributes: Any) -> str:
        """Append a node of one output, named by `kind` and a number. Returns the name of the output."""
        name = f"{kind}{self.counts[kind]}"
        self.counts[kind] += 1
        output = self._tensors.unused(f"{name}.y")
        self._nodes.append(helper.make_node(op, list(tensors), [output], name, **attributes))
        return output

    def real(self, var: Expr) -> str:
        """The real values of a variable that holds integers. Raises `InputError` where their scale is not known."""
        return self.emit("DequantizeLinear", [self.tensor(var), *self._numbers(var)], "dequantize")

    def quantised(self, tensor: str, var: Expr) -> str:
        """Real values in the quantisation of `var`. Raises as `real`."""
        return self.emit("QuantizeLinear", [tensor, *self._numbers(var)], "quantize")

    def _numbers(self, var: Expr) -> list[str]:
        if var not in self.parameters:
            raise InputError(f"is on {var.ty.dtype} that nothing dequantises")
        scale, zero = self.parameters[var]
        return [self.constant(scale, "float32"), self.constant(zero, str(var.ty.dtype))]

    def transposed(self, tensor: str, layout: str, wanted: str) -> str:
        """`tensor` of `layout` in the `wanted` one. Raises `InputError` for one that is no permutation of it."""
        if layout == wanted:
            return tensor
        if sorted(layout) != sorted(wanted):
            raise InputError(f"has layout {layout}; only permutations of {wanted} are supported")
        made = self.emit("Transpose", [tensor], wanted.lower(), perm=[layout.index(letter) for letter in wanted])
        self._layouts.add(self._nodes[-1].name)
        return made

    def layer(self, op: str, call: Expr, var: Expr, tensors: list[str], axis: int, **attributes: object) -> str:
        """A layer with its channels along `axis`; it takes the int32 constants that its only reader adds as biases."""
        kind, weights = kind_of(call).rsplit(".", 1)[-1], self.known(call.args[1])
        if bias := self._bias(var, axis):
            tensors, op = [*tensors, bias], "Gemm" if op == "MatMul" else op
        made = self.emit(op, tensors, kind, **attributes)
        # TVM's importer of .tflite files makes zero points int32; that of ONNX gives them the tensor's type
        if isinstance(weights, Weights) and weights.zero.dtype == np.int32 and weights.scale.size == 1:
            dense = kind == "matmul"
            self._rounded |= {self._nodes[-1].name} if dense or weights.integers.dtype == np.uint8 else set()
        return made

    def _bias(self, var: Expr, axis: int) -> str:
        """The tensor of the biases that the only reader of a layer adds, one per channel; empty without such."""
        readers, rank, channels = self.readers.get(var, []), len(var.ty.shape), int(var.ty.shape[axis])
        call: Expr = self.calls[readers[0]] if len(readers) == 1 else None
        if kind_of(call) != "relax.add" or (kind_of(self.calls[var]) == "relax.matmul" and rank > 2):
            return ""
        other = next((arg for arg in call.args if not arg.same_as(var)), var)
        if (moved := self._moved(self.calls.get(other))) is not None:
            self.constants[other] = moved  # which the function may make after the layer
        bias = self.known(other)
        shape = [channels if k == axis else 1 for k in range(rank)]
        if not isinstance(bias, Weights) or bias.integers.dtype != np.int32:
            return ""
        if [1] * (rank - len(bias.shape)) + list(bias.shape) != shape:
            return ""
        self._biased[readers[0]] = var
        return self._dequantised(replace(bias, integers=bias.integers.reshape(-1), axis=0))

    def _part(self, call: Expr, index: int) -> str:
        """One part of a split."""
        x, axis = call.args[0], int(call.attrs.axis) % len(call.args[0].ty.shape)
        size, sections = int(x.ty.shape[axis]), call.attrs.indices_or_sections
        starts = list(range(0, size, -(-size // sections))) if isinstance(sections, int) else [0, *ints(sections)]
        return self.slice(x, "split", [axis], [starts[index]], [[*starts, size][index + 1]], [1])

    def slice(self, x: Expr, kind: str, axes: list[int], *bounds: list[int]) -> str:
        """A slice by axes, begin, end and steps."""
        begin, end, steps = (self.constant(each, "int64") for each in bounds)
        return self.emit("Slice", [self.tensor(x), begin, end, self.constant(axes, "int64"), steps], kind)


def arguments(value: Expr) -> Iterator[Expr]:
    """The variables in an expression of one binding, also those in tuples."""
    if isinstance(value, ir.Call):
        for arg in value.args:
            yield from arguments(arg)
    elif isinstance(value, ir.Tuple):
        for field in value.fields:
            yield from arguments(field)
    elif isinstance(value, ir.TupleGetItem):
        yield from arguments(value.tuple_value)
    elif isinstance(value, Var):
        yield value


def kind_of(value: Expr) -> str:
    """The name of the Relax operator that `value` calls, or of the function in TIR; empty for other values."""
    if not isinstance(value, ir.Call):
        return ""
    name = getattr(value.op, "name", "")
    if name == "relax.call_tir" and (match := _LOWERED.fullmatch(value.args[0].name_hint)):
        return match[1]
    return name


def ints(values: Iterable[Expr]) -> list[int]:
    """Integers of TVM as Python's."""
    return [int(getattr(v, "value", v)) for v in values]


def array_of(expr: Expr) -> np.ndarray:
    """The value of a constant."""
    return np.asarray(expr.value.numpy() if hasattr(expr.value, "numpy") else expr.value)


def _number(expr: Expr) -> float:
    return float(array_of(expr).reshape(-1)[0])


def _perm(call: Expr) -> list[int]:
    rank = len(call.args[0].ty.shape)
    return [k % rank for k in ints(call.attrs.axes)] if call.attrs.axes is not None else [*reversed(range(rank))]


def _info(name: str, var: Expr) -> ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(str(var.ty.dtype)))
    return helper.make_tensor_value_info(name, dtype, ints(var.ty.shape))


def _parameters(call: Expr) -> Parameters:
    """Scale and zero point of a quantize or dequantize. Raises `InputError` unless they are constants."""
    for what, expr in (("scale", call.args[1]), ("zero point", call.args[2])):
        if not hasattr(expr, "value"):
            raise InputError(f"has a {what} that is no constant; activations have one, known before")
    return array_of(call.args[1]), array_of(call.args[2])


def _same_axis(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """The axis of the reshaped array that has the indices of `axis`; None if none has."""
    if not before:
        return None
    ahead = math.prod(before[:axis])
    return next((k for k, n in enumerate(after) if n == before[axis] and math.prod(after[:k]) == ahead), None)


def sunk(ops: Sequence[g.Operator]) -> tuple[g.Operator, ...]:
    """`ops`, with element-wise operators on images NHWC computed before these are transposed from NCHW.

    The transpositions that this leaves without a reader, or that only go there and back, are removed later
    (compiler/graph/simplify.py).
    """
    behind: dict[str, g.Tensor] = {}  # tensor NHWC -> the one NCHW that it was made of
    names = Names(name for op in ops for name in (op.name, op.output.name))
    found: list[g.Operator] = []
    for op in ops:
        parts = [part for t in op.inputs if (part := _moved(t, behind)) is not None]
        if isinstance(op, g.Transpose) and op.relayout and op.axes == TO_NHWC:
            behind[op.output.name] = op.x
        y, moved = op.output, None
        if len(parts) == len(op.inputs) and len(y.shape) == 4 and y.dtype == "int8":
            inner = replace(y, name=names.unused(f"{y.name}.nchw"), shape=tuple(y.shape[k] for k in TO_NCHW))
            moved = op.permuted(tuple(parts), inner, TO_NCHW)
        if moved is None:
            found.append(op)
            continue
        found += moved, g.Transpose(names.unused(f"{op.name}.nhwc"), (moved.output,), y, TO_NHWC, True)
        behind[y.name] = moved.output
    return tuple(found)


def _moved(t: g.Tensor, behind: dict[str, g.Tensor]) -> g.Tensor | None:
    """`t` as NCHW, where it is a constant or was transposed from NCHW; None elsewhere."""
    if t.data is None or len(t.shape) != 4:
        return behind.get(t.name)
    data = np.ascontiguousarray(t.data.transpose(TO_NCHW))
    return replace(t, shape=data.shape, data=data)


Translate = Callable[[Translation, Expr, Expr], str]  # of a call and its variable; returns its tensor


def _plain(op: str, **attributes: Callable[[Any], object]) -> Translate:
    """An operator of ONNX on the same tensors; `attributes` are the names of those that both have, and their types."""

    def translate(t: Translation, call: Expr, var: Expr) -> str:
        args = call.args[0].fields if hasattr(call.args[0], "fields") else call.args
        values = {name: kind(getattr(call.attrs, name)) for name, kind in attributes.items()}
        return t.emit(op, map(t.tensor, args), kind_of(call).rsplit(".", 1)[-1], **values)

    return translate


def _quantisation(op: str) -> Translate:
    def translate(t: Translation, call: Expr, var: Expr) -> str:
        (scale, zero), x = _parameters(call), call.args[0]
        integers, real = (x, var) if op == "DequantizeLinear" else (var, x)
        if integers.ty.dtype not in INTEGERS:
            raise InputError(f"makes {integers.ty.dtype}; only {' and '.join(INTEGERS)} are supported")
        if real.ty.dtype != "float32":
            raise InputError(f"makes {real.ty.dtype} of integers; only float32 is supported")
        if scale.size > 1:
            raise InputError(f"has {scale.size} values of scale; activations have one")
        numbers = t.constant(scale.reshape(()), "float32"), t.constant(zero.reshape(()), str(integers.ty.dtype))
        return t.emit(op, [t.tensor(x), *numbers], op.lower().removesuffix("linear"))

    return translate


def _image(op: str) -> Translate:
    """Convolutions and pooling, whose images and weights may have other layouts."""

    def translate(t: Translation, call: Expr, var: Expr) -> str:
        a, (x, *weights) = call.attrs, call.args
        layout = str(a.data_layout if weights else a.layout)
        if str(a.out_layout or layout) != layout:
            raise InputError(f"turns images of layout {layout} to {a.out_layout}, which is not supported")
        tensors = [t.transposed(t.tensor(x), layout, "NCHW")]
        facts: dict[str, object] = {key: ints(value) for key, value in (("strides", a.strides), ("pads", a.padding))}
        facts["dilations"] = ints(a.dilation)
        if weights:
            wanted = "OIHW" if op == "Conv" else "IOHW"
            tensors.append(t.transposed(t.tensor(weights[0]), str(a.kernel_layout), wanted))
            facts |= {"group": int(a.groups)} | ({} if op == "Conv" else {"output_padding": ints(a.output_padding)})
            made = t.layer(op, call, var, tensors, layout.index("C"), **facts)
        else:
            facts |= {"kernel_shape": ints(a.pool_size), "ceil_mode": int(a.ceil_mode)}
            facts |= {"count_include_pad": int(a.count_include_pad)} if op == "AveragePool" else {}
            made = t.emit(op, tensors, kind_of(call).rsplit(".", 1)[-1], **facts)
        return t.transposed(made, "NCHW", layout)

    return translate


def _matmul(t: Translation, call: Expr, var: Expr) -> str:
    return t.layer("MatMul", call, var, [t.tensor(arg) for arg in call.args], len(var.ty.shape) - 1)


def _integer_mean(t: Translation, call: Expr, var: Expr) -> str:
    """The file's operator rounds to the nearest, and so does this one; TVM's form cuts off."""
    pool = _integer_pool(call, t.calls)
    if pool is None or pool.attrs.count_include_pad:
        raise InputError("is not supported")
    a, x = pool.attrs, t.calls[pool.args[0]].args[0]
    image = t.transposed(t.real(x), str(a.layout), "NCHW")
    facts = {"kernel_shape": ints(a.pool_size), "strides": ints(a.strides), "pads": ints(a.padding)}
    made = t.emit("AveragePool", [image], "avg_pool2d", dilations=ints(a.dilation), ceil_mode=int(a.ceil_mode), **facts)
    t.means[f"avg_pool2d{t.counts['avg_pool2d'] - 1}"] = var.ty.dtype == "uint8"
    return t.quantised(t.transposed(made, "NCHW", str(a.layout)), var)


def _shaped(t: Translation, call: Expr, var: Expr) -> str:
    return t.emit("Reshape", [t.tensor(call.args[0]), t.constant(ints(var.ty.shape), "int64")], "reshape")


def _permuted(t: Translation, call: Expr, var: Expr) -> str:
    return t.emit("Transpose", [t.tensor(call.args[0])], "permute_dims", perm=_perm(call))


def _strided_slice(t: Translation, call: Expr, var: Expr) -> str:
    return t.slice(call.args[0], "strided_slice", *(ints(fields.fields) for fields in call.args[1:5]))


def _mean(t: Translation, call: Expr, var: Expr) -> str:
    axes = t.constant(ints(call.attrs.axis), "int64")
    return t.emit("ReduceMean", [t.tensor(call.args[0]), axes], "mean", keepdims=int(call.attrs.keepdims))


def _clip(t: Translation, call: Expr, var: Expr) -> str:
    """A clip of real values, or of integers, whose bounds are integers."""
    x, bounds = call.args[0], [np.float32(_number(arg)) for arg in call.args[1:3]]
    if var.ty.dtype not in INTEGERS:
        return t.emit("Clip", [t.tensor(x), *map(t.constant, bounds)], "clip")
    real = t.real(x)
    scale, zero = t.parameters[x]
    bounds = [np.float32((bound - zero.reshape(-1)[0]) * scale.reshape(-1)[0]) for bound in bounds]
    return t.quantised(t.emit("Clip", [real, *map(t.constant, bounds)], "clip"), var)


def _bound(lower: bool) -> Translate:
    """A maximum or minimum with a constant, which TVM's importer guards against NaN by a `where`."""

    def translate(t: Translation, call: Expr, var: Expr) -> str:
        x, bound = call.args[1].fields
        guard: Expr = t.calls.get(bound)
        bound = guard.args[2] if kind_of(guard) == "relax.where" else bound
        if not hasattr(bound, "value"):
            raise InputError("has a bound that is no constant, which is not supported")
        limit = t.constant(np.float32(_number(bound)))
        return t.emit("Clip", [t.tensor(x), limit] if lower else [t.tensor(x), "", limit], kind_of(call))

    return translate


TRANSLATIONS: dict[str, Translate] = {
    "relax.quantize": _quantisation("QuantizeLinear"),
    "relax.dequantize": _quantisation("DequantizeLinear"),
    "relax.add": _plain("Add"),
    "relax.subtract": _plain("Sub"),
    "relax.multiply": _plain("Mul"),
    "relax.matmul": _matmul,
    "relax.concat": _plain("Concat", axis=int),
    "relax.nn.softmax": _plain("Softmax", axis=int),
    "relax.sigmoid": _plain("Sigmoid"),
    "relax.tanh": _plain("Tanh"),
    "relax.nn.relu": _plain("Relu"),
    "relax.nn.leakyrelu": _plain("LeakyRelu", alpha=float),
    "relax.nn.conv2d": _image("Conv"),
    "relax.nn.conv2d_transpose": _image("ConvTranspose"),
    "relax.nn.max_pool2d": _image("MaxPool"),
    "relax.nn.avg_pool2d": _image("AveragePool"),
    "relax.astype": _integer_mean,
    "relax.mean": _mean,
    "relax.clip": _clip,
    "maximum": _bound(True),
    "minimum": _bound(False),
    "relax.strided_slice": _strided_slice,
    "relax.permute_dims": _permuted,
    **dict.fromkeys(("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"), _shaped),
}
KINDS = frozenset(("", *TRANSLATIONS, *_READ_LATER))  # of expressions that can be translated
