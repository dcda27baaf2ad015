"""The state that a .tflite file keeps between inferences, as states of the graph: variables, SVDF and LSTM.

There are two kinds of variables. A resource is named by VAR_HANDLE, gets its first values in the subgraph that
CALL_ONCE runs, and is moved by READ_VARIABLE and ASSIGN_VARIABLE. A variable tensor is an input of SVDF or of
UNIDIRECTIONAL_SEQUENCE_LSTM, which changes it. What has no first values starts as real zeros, that is at its zero
point, as in TensorFlow Lite and its Micro form; LiteRT refuses to read a resource without any.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ... import graph as g
from ...graph.recurrent import product_scale
from ..core import Refused, like
from ..moves import along, sliced, turned
from .builder import Key, Resource, TfliteImporter
from .file import FileNode, Info, Subgraph, schema


def handle(imp: TfliteImporter, node: FileNode) -> None:
    """VAR_HANDLE names a resource."""
    imp.variables.name(node.outputs[0], _key(node))


def _key(node: FileNode) -> Key:
    return node.option("container", b"") or b"", node.option("sharedName", b"") or b""


def call_once(imp: TfliteImporter, node: FileNode) -> None:
    """CALL_ONCE of a subgraph that assigns constants."""
    number, others = node.option("initSubgraphIndex", 0), imp.file.others
    if not 1 <= number <= len(others):
        raise Refused(f"runs subgraph {number}, which the file does not have")
    for key, values in _assigned(others[number - 1]):
        imp.variables.initialise(key, values)


def _assigned(part: Subgraph) -> list[tuple[Key, np.ndarray]]:
    """The constants that a subgraph gives to resources. Raises `Refused` where it does anything else."""
    keys, found = {}, []
    for node in part.nodes:
        if node.kind == "VAR_HANDLE":
            keys[node.outputs[0]] = _key(node)
            continue
        target, value = (*node.inputs, -1, -1)[:2]
        data = part.tensors[value].data if value >= 0 else None
        if node.kind != "ASSIGN_VARIABLE" or target not in keys or data is None:
            raise Refused(f"runs {node.kind} {node.name!r}; only assignments of constants to variables are supported")
        found.append((keys[target], data))
    return found


def _named(imp: TfliteImporter, node: FileNode) -> tuple[Info, Resource]:
    info = imp.info(node, 0)
    found = imp.variables.resource(node.inputs[0])
    if found is None:
        raise Refused(f"names {info.name!r}, which no VAR_HANDLE before it gives")
    return info, found


def read(imp: TfliteImporter, node: FileNode) -> None:
    """READ_VARIABLE: the state, or the value of an ASSIGN_VARIABLE before it."""
    info, found = _named(imp, node)
    y = imp.described(imp.file.tensors[node.outputs[0]])
    first = found.initial
    if first is not None and (first.shape, str(first.dtype)) != (y.shape, y.dtype):
        raise Refused(f"reads {y.dtype} {y.shape}; the variable starts as {first.dtype} {first.shape}")
    _check_shape(found, y)
    found.tensor = found.tensor or replace(y, name=info.name)
    now = found.now or found.tensor
    if (now.scale, now.zero_point) != (y.scale, y.zero_point):
        raise Refused(
            f"takes a variable of scale {now.scale:g} and zero point {now.zero_point} for {y.scale:g} and "
            f"{y.zero_point}; they must be equal within an inference"
        )
    imp.alias(node.outputs[0], now)


def _check_shape(found: Resource, y: g.Tensor) -> None:
    """Raise `Refused` unless the resource has the shape and type of `y`, as far as they are known."""
    for t in (found.tensor, found.now):
        if t is not None and (t.shape, t.dtype) != (y.shape, y.dtype):
            raise Refused(f"takes a variable of {t.dtype} {t.shape} for {y.dtype} {y.shape}; they must be equal")


def assign(imp: TfliteImporter, node: FileNode) -> None:
    """ASSIGN_VARIABLE gives a resource its next value."""
    _, found = _named(imp, node)
    value = imp.activation(node, 1, plain=True, dtype=None)
    _check_shape(found, value)
    found.now = value


_GATE_SCALE = 2.0**-12  # of the sums before a gate's function
_FUNCTION_SCALE = 2.0**-15  # of what it gives
_TANH, _RELU = schema.ActivationFunctionType.TANH, schema.ActivationFunctionType.RELU
_GATES = ("input", "forget", "cell", "output")


def _matrix(imp: TfliteImporter, node: FileNode, position: int, kind: str = "INT8") -> tuple[np.ndarray, float]:
    """(weights with two dimensions, their scale)."""
    data, info = imp.known(node, position), imp.info(node, position)
    if info.type != kind or data.ndim != 2:
        raise Refused(f"has weights {info.name!r}: {info.type.lower()} of shape {info.shape}, expected {kind.lower()}")
    return data, _scale(info)


def _scale(info: Info) -> float:
    if info.scale.size != 1 or info.zero_point.any() or not 0 < float(info.scale[0]) < math.inf:
        raise Refused(f"has {info.name!r} without one scale of its own and zero point 0")
    return float(info.scale[0])


def _biases(imp: TfliteImporter, node: FileNode, position: int, count: int) -> np.ndarray:
    if not imp.given(node, position):
        return np.zeros(count, np.int32)
    data, info = imp.known(node, position), imp.info(node, position)
    if info.type != "INT32" or data.size != count:
        raise Refused(f"has bias {info.name!r}: {info.type.lower()} of shape {info.shape}, expected int32 ({count},)")
    return data.reshape(count)


def _state(imp: TfliteImporter, node: FileNode, position: int, kinds: tuple[str, ...], size: int) -> g.Tensor:
    """The variable tensor at a position, (N, size)."""
    info = imp.info(node, position)
    t = imp.described(info)
    if not info.variable or t.dtype.upper() not in kinds or len(t.shape) != 2 or t.shape[1] != size:
        allowed = " or ".join(kinds).lower()
        raise Refused(f"has state {info.name!r}: {t.dtype} {t.shape}; it must be a variable of {allowed} (N, {size})")
    return t


def svdf(imp: TfliteImporter, node: FileNode) -> None:
    """SVDF: features of the input enter a window in time, which each filter sums; the window is the state.

    int8 state makes it a dense layer and a convolution along time; int16 state has operators of its own.
    """
    x, y, rank = imp.activation(node, 0), imp.result(node), node.option("rank", 0)
    if node.option("fusedActivationFunction", 0) != _RELU:  # which the output's zero point says, as for other kernels
        raise Refused("has a fused activation other than RELU, which integer kernels do not have")
    kind = imp.info(node, 2).type
    features, feature_scale = _matrix(imp, node, 1)
    times, time_scale = _matrix(imp, node, 2, kind if kind in ("INT8", "INT16") else "INT8")
    filters, memory = times.shape
    if rank < 1 or filters % rank or len(features) != filters or len(x.shape) != 2:
        raise Refused(f"has input {x.shape}, features {features.shape}, filters {times.shape} of rank {rank}")
    state = _state(imp, node, 4, (kind,), filters * memory)
    bias = _biases(imp, node, 3, filters // rank)
    name = node.name
    window = (x.shape[0], filters, 1, memory)
    new = like(state, f"{name}.features", (x.shape[0], filters))
    facts = {"weight_scale": np.full(filters, feature_scale, np.float32), "bias": np.zeros(filters, np.int32)}
    if kind == "INT8":
        new = imp.add(g.Features, (x,), new, features, **facts)
    else:
        scale = product_scale(x.scale, feature_scale, over=state.scale)
        new = imp.add(g.Dense16, (x,), new, features, facts["bias"], np.full(filters, scale))
    new = imp.reshape(f"{name}.newest", new, (*window[:3], 1))
    if memory > 1:
        before = imp.reshape(f"{name}.before", state, window)
        kept = sliced(imp, f"{name}.kept", before, along(window, 3, range(1, memory)))
        new = imp.add(g.Concat, (kept, new), like(state, f"{name}.window", window), 3)
    imp.variables.keep(state, imp.reshape(f"{name}.state", new, state.shape))
    if kind == "INT16":
        factor = product_scale(state.scale, time_scale, over=y.scale)
        rows = imp.reshape(f"{name}.rows", new, (x.shape[0], filters, memory))
        imp.produce(node, g.Filter16(name, (rows,), y, times, bias, factor))
        return
    weight = np.ascontiguousarray(times.reshape(-1, rank, 1, memory))
    sums = like(y, f"{name}.sums", (x.shape[0], filters // rank, 1, 1))
    scales = np.full(filters // rank, time_scale, np.float32)
    sums = imp.add(g.TimeFilter, (new,), sums, weight, scales, bias, groups=filters // rank)
    imp.produce(node, g.Reshape(name, (sums,), y))


def lstm(imp: TfliteImporter, node: FileNode) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM with int8 activations and int16 cells, without peepholes, projection and norm."""
    x, y = imp.activation(node, 0, plain=True), imp.result(node, plain=True)
    _check_lstm(imp, node, x)
    coupled = not imp.given(node, 1)
    kinds = range(1 if coupled else 0, 4)
    inner = [_matrix(imp, node, 1 + k) for k in kinds]
    own = [_matrix(imp, node, 5 + k) for k in kinds]
    size = len(inner[0][0])
    shapes = {w.shape for w, _ in inner}, {w.shape for w, _ in own}
    if shapes != ({(size, x.shape[2])}, {(size, size)}):
        raise Refused(f"has weights of shapes {sorted(shapes[0] | shapes[1])} on input {x.shape}")
    hidden = _state(imp, node, 18, ("INT8",), size)
    cells = _state(imp, node, 19, ("INT16",), size)
    bias = np.concatenate([_biases(imp, node, 12 + k, size) for k in kinds])
    name, (first, second) = node.name, ((1, 0) if node.option("timeMajor", False) else (0, 1))
    n, steps, rows = x.shape[first], x.shape[second], len(kinds) * size
    x = turned(imp, f"{name}.sequence", x, (1, 0, 2)) if first else x
    flat = imp.reshape(f"{name}.inputs", x, (n * steps, x.shape[2]))
    gates = g.Tensor(f"{name}.gates", (n * steps, rows), "int16", _GATE_SCALE)
    scales = [product_scale(s, x.scale, over=_GATE_SCALE) for _, s in inner]
    weight = np.concatenate([w for w, _ in inner])
    gates = imp.add(g.Dense16, (flat,), gates, weight, bias, np.repeat(scales, size))
    gates = imp.reshape(f"{name}.steps", gates, (n, steps, rows))
    weight = np.concatenate([w for w, _ in own])
    less = (-hidden.zero_point * weight.sum(1, dtype=np.int64)).astype(np.int32)
    scales = [product_scale(s, hidden.scale, over=_GATE_SCALE) for _, s in own]
    inside = _inside(imp, node, hidden)
    factor = float(np.float32(_FUNCTION_SCALE / inside.scale[0] * _FUNCTION_SCALE))
    wide = replace(hidden, name=f"{name}.wide", shape=(n, steps + 1, size), dtype="int16")
    facts = {"factor": factor, "clip": _clip(node, cells), "coupled": coupled}
    factors = np.repeat(scales, size)
    wide = imp.add(g.Lstm, (gates, hidden, cells), wide, weight, less, factors, **facts)
    outputs = like(hidden, f"{name}.outputs", (n, steps, size))
    outputs = imp.add(g.LstmOutputs, (wide,), outputs) if first else imp.emit(g.LstmOutputs(name, (wide,), y))
    last = sliced(imp, f"{name}.last", outputs, along(outputs.shape, 1, range(steps - 1, steps)))
    imp.variables.keep(hidden, imp.reshape(f"{name}.state", last, hidden.shape))
    end = imp.add(g.LstmCells, (wide,), like(cells, f"{name}.cells", (n, 1, size)))
    imp.variables.keep(cells, imp.reshape(f"{name}.cells.state", end, cells.shape))
    if first:
        imp.emit(g.Transpose(name, (outputs,), y, (1, 0, 2)))
    imp.alias(node.outputs[0], y)


def _clip(node: FileNode, cells: g.Tensor) -> int:
    """The cells' clamp in their steps, 0 for none."""
    clip = float(node.option("cellClip", 0.0))
    return int(min(max(np.float32(clip) / np.float32(cells.scale), 0.0), 32767.0))


def _inside(imp: TfliteImporter, node: FileNode, hidden: g.Tensor) -> Info:
    """The intermediate tensor with the scale and zero point of the hidden values."""
    if len(node.intermediates) != 5 or node.intermediates[4] < 0:
        raise Refused(f"has {len(node.intermediates)} intermediate tensors; int8 ones of five are needed")
    info = imp.file.tensors[node.intermediates[4]]
    if info.scale.size != 1 or not 0 < float(info.scale[0]) < math.inf:
        raise Refused(f"has intermediate tensor {info.name!r} without a scale")
    if (float(info.scale[0]), int(info.zero_point[0])) != (hidden.scale, hidden.zero_point):
        raise Refused(f"has hidden values {info.name!r} in another quantisation than their state {hidden.name!r}")
    return info


def _check_lstm(imp: TfliteImporter, node: FileNode, x: g.Tensor) -> None:
    """Raise `Refused` for peepholes, projections, norms, and other activations than TANH."""
    for positions, what in (((9, 10, 11), "peepholes"), ((16, 17), "a projection"), ((20, 21, 22, 23), "a layer norm")):
        if any(imp.given(node, k) for k in positions):
            raise Refused(f"has {what}, which is not supported")
    if node.option("fusedActivationFunction", 0) != _TANH or node.option("diagonalRecurrentTensors", False):
        raise Refused("has an activation other than TANH, or diagonal weights, which are not supported")
    if len(x.shape) != 3:
        raise Refused(f"has input {x.name!r} of {len(x.shape)} dimensions; 3 are needed")
