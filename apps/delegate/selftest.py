"""Proof that an interpreter has the ABI of abi.py: a model of one addition runs through it, in a process of its own.

Every structure that the delegate reads is read there, and known values must stand where the layouts say. A wrong layout
may end that process with a fault; ours only learns of it.
"""

from __future__ import annotations

import base64
import ctypes
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...hw.errors import UnsupportedError
from . import abi as c
from .abi import Given, Native

DEFAULT = "ai_edge_litert.interpreter"
SECONDS = 120  # more than a busy machine takes to import TensorFlow
PROVED = "proved"
_SHAPE, _SCALES, _ZERO_POINTS = (1, 2, 3, 4), (0.5, 0.25, 2.0), (3, -7, 11)
_NAMES = ("first", "second", "sum")
_CHILD = "from tilewright.apps.delegate.selftest import main; main()"


def prove(module: str = DEFAULT, layouts: c.Layouts = c.LAYOUTS) -> None:
    """Prove, once per process, that the interpreter of `module` has the `layouts`. Raises `UnsupportedError`."""
    found = _outcome(module, json.dumps(layouts))
    if found != PROVED:
        raise UnsupportedError(
            f"the TFLite interpreter of {module} has another binary interface than the delegate knows ({found[:120]}); "
            "use ai-edge-litert 2.3, tflite-runtime 2.14 or tensorflow 2.21"
        )


@cache
def _outcome(module: str, layouts: str) -> str:
    """The last line that the proof printed, or how its process ended."""
    given = {"module": module, "layouts": json.loads(layouts), "model": base64.b64encode(_model()).decode()}
    paths = os.pathsep.join(filter(None, sys.path))
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"the self-test could not run: {exc}"
    if done.returncode < 0:
        return f"the self-test ended with signal {-done.returncode}"
    lines = (done.stdout if done.returncode == 0 else done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"the self-test ended with status {done.returncode}"


def _model() -> bytes:
    """A file of one int8 addition of a constant."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated

    s: Any = schema_py_generated
    model, graph, op, code = s.ModelT(), s.SubGraphT(), s.OperatorT(), s.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = s.BuiltinOperator.ADD
    code.version = 2  # the first with int8
    op.inputs, op.outputs = [0, 1], [2]
    op.builtinOptionsType, op.builtinOptions = s.BuiltinOptions.AddOptions, s.AddOptionsT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [op], [0], [2]
    model.version, model.operatorCodes, model.subgraphs = 3, [code], [graph]
    model.buffers = [s.BufferT(), s.BufferT()]
    model.buffers[1].data = _second().tobytes()
    for k, (name, scale, zero_point) in enumerate(zip(_NAMES, _SCALES, _ZERO_POINTS)):
        t = s.TensorT()
        t.name, t.shape, t.type, t.buffer = name, list(_SHAPE), s.TensorType.INT8, int(k == 1)
        t.quantization = s.QuantizationParametersT()
        t.quantization.scale, t.quantization.zeroPoint = [scale], [zero_point]
        graph.tensors.append(t)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _first() -> np.ndarray:
    return np.arange(-60, -36, dtype=np.int8).reshape(_SHAPE)


def _second() -> np.ndarray:
    return np.arange(24, dtype=np.int8).reshape(_SHAPE)[:, ::-1]


class Difference(Exception):
    """Raised where a value is not the expected one."""


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Difference(f"{what} is {found}, expected {expected}")


class Probe:
    """A delegate that takes the one node, looks at everything, and computes `first ^ second`, which no addition does.

    With `fail` it fails instead.
    """

    def __init__(self, layouts: c.Layouts, fail: bool = False):
        self.abi, self.fail, self.closed = c.Abi(layouts), fail, 0
        self.native = Native(self.abi, self._claims, self._make)

    def _get_native_delegate_pointer(self) -> int:
        return self.native.pointer

    def _claims(self, context: c.Context) -> Sequence[int]:
        _expect("the execution plan", context.plan(), [0])
        _expect("the number of tensors", context.count >= len(_NAMES), True)
        node, registration = context.node(0)
        _expect("the node's inputs", c.ints(node.inputs), [0, 1])
        _expect("the node's outputs", c.ints(node.outputs), [2])
        _expect("the operator's code and version", (registration.builtin_code, registration.version), (0, 2))
        for k, name in enumerate(_NAMES):
            t = context.tensor(k)
            _expect("a tensor's name", ctypes.string_at(t.name).decode(), name)
            _expect("a tensor's type and bytes", (t.type, t.bytes), (c.TYPES["int8"], 24))
            _expect("a tensor's dimensions", tuple(c.ints(t.dims)), _SHAPE)
            _expect("a tensor's quantisation", (t.scale, t.zero_point), (_SCALES[k], _ZERO_POINTS[k]))
            _expect("a tensor's kind of quantisation", (t.quantization_type, t.is_variable), (c.AFFINE, False))
            _expect("whether a tensor is constant", t.allocation_type == c.CONSTANT, k == 1)
        _expect("the constant", self._values(context, 1).tolist(), _second().tolist())
        return [0]

    def _values(self, context: c.Context, number: int) -> np.ndarray:
        return c.array(context.tensor(number), np.dtype("int8"), _SHAPE)

    def _make(self, context: c.Context, given: Given) -> Any:
        _expect("the partition's nodes and outputs", (given.nodes, given.outputs), ((0,), (2,)))
        _expect("the partition's first input", given.inputs[:1], (0,))
        return SimpleNamespace(check=lambda context: None, run=self._run, close=self._close)

    def _run(self, context: c.Context) -> None:
        if self.fail:
            raise Difference("100 % on purpose")
        _expect("the input", self._values(context, 0).tolist(), _first().tolist())
        self._values(context, 2)[...] = self._values(context, 0) ^ self._values(context, 1)

    def _close(self) -> None:
        self.closed += 1


def check(module: str, layouts: c.Layouts, model: bytes) -> None:
    """Run the proof in this process. Raises `Difference`, or what an interpreter raises."""
    interpreter_of = importlib.import_module(module).Interpreter
    for fail in (False, True):
        probe = Probe(layouts, fail)
        interpreter = interpreter_of(model_content=model, experimental_delegates=[probe])
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, _first())
        if fail:
            try:
                interpreter.invoke()
            except (RuntimeError, ValueError) as exc:
                _expect("whether the error has our text", "Difference: 100 % on purpose" in str(exc), True)
            else:
                raise Difference("a kernel's failure does not reach who invokes the interpreter")
        else:
            interpreter.invoke()
            _expect("the output", interpreter.get_tensor(2).tolist(), (_first() ^ _second()).tolist())
        probe.native.taken()
        probe.native.error = None  # an exception holds frames, and these the interpreter
        del interpreter
        _expect("how many kernels were freed", probe.closed, 1)


def main() -> None:
    """Entry of the proof's process; module, layouts and model come as JSON on standard input."""
    given = json.load(sys.stdin)
    check(given["module"], given["layouts"], base64.b64decode(given["model"]))
    sys.stdout.write(f"{PROVED}\n")
