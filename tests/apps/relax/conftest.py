"""Relax modules, made by TVM's importers, and what runs them."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated

from tilewright.apps.relax import release
from tilewright.compiler.tvm_compat import relax


class SchemaModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The package `tflite`, which TVM's importer wants, of the classes that LiteRT brings."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "tflite":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname == "tflite")
        return None

    def exec_module(self, module):
        known, (_, _, name) = vars(schema_py_generated), module.__name__.partition(".")
        vars(module).update({key: value for key, value in known.items() if key.startswith(name or "A") or not name})


@pytest.fixture
def tflite_module(monkeypatch):
    """The Relax module that TVM's importer makes of a .tflite file."""
    if importlib.util.find_spec("tflite") is None:
        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, SchemaModules()])

    def run(path):
        model = importlib.import_module("tflite").Model.GetRootAs(path.read_bytes(), 0)
        return importlib.import_module("tvm.relax.frontend.tflite").from_tflite(model)

    yield run
    for name in [name for name in sys.modules if name.partition(".")[0] == "tflite"]:
        del sys.modules[name]


@pytest.fixture
def onnx_module():
    """The Relax module that TVM's importer makes of an ONNX model."""
    return lambda model: importlib.import_module("tvm.relax.frontend.onnx").from_onnx(model, keep_params_in_input=False)


@pytest.fixture
def execute():
    """Runs a module, or its executable, under the virtual machine: numpy's arrays in and out, a list if several."""
    tvm = importlib.import_module("tvm")

    machines = {}

    def run(mod, *inputs):
        if mod not in machines:
            executable = tvm.compile(mod, "llvm") if hasattr(mod, "functions") else mod
            machines[mod] = relax.VirtualMachine(executable, tvm.cpu())
        found = machines[mod]["main"](*map(tvm.runtime.tensor, inputs))
        return found.numpy() if hasattr(found, "numpy") else [each.numpy() for each in found]

    yield run
    release()


@pytest.fixture
def function():
    """A maker of modules of one function: `body(emit, *parameters)` emits operators and gives the result.

    Parameters are (shape, dtype) pairs.
    """

    def make(body, *parameters, dataflow=True):
        params = [relax.Var(f"x{k}", relax.TensorType(*each)) for k, each in enumerate(parameters)]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            if dataflow:
                with builder.dataflow():
                    result = builder.emit_output(body(builder.emit, *params))
            else:
                result = body(builder.emit, *params)
            builder.emit_func_output(result)
        return builder.get()

    return make


@pytest.fixture
def quantised():
    """Emits a quantize and a dequantize behind it; `layer` a product with constant weights (64, 64) before them."""

    class Quantised:
        scale, zero = relax.const(np.float32(0.1)), relax.const(np.int8(3))
        weight = relax.const(np.random.default_rng(0).integers(-99, 99, (64, 64)).astype(np.int8))
        weight_scale = relax.const(np.float32(0.01))

        def __call__(self, emit, x):
            return emit(relax.op.dequantize(emit(relax.op.quantize(x, self.scale, self.zero)), self.scale, self.zero))

        def layer(self, emit, x):
            weight = emit(relax.op.dequantize(self.weight, self.weight_scale, relax.const(np.int8(0)), axis=1))
            return self(emit, emit(relax.op.matmul(x, weight)))

    return Quantised()


@pytest.fixture
def chain(qdq):
    """A maker of QDQ models: convolution, a float operator, convolution, and a sum with a branch around them."""

    def make(operator="Sin", activations=np.int8):
        m = qdq(activations=activations)

        def conv(x, out, into):
            weights, scale = m.weights(out, into, 3, 3)
            return m.quantise(m.node("Conv", x, weights, m.bias(scale), pads=[1] * 4), 0.07, 2)

        first = conv(m.quantise(m.input("x", [1, 8, 6, 6])), 16, 8)
        middle = m.quantise(m.node(operator, first), 0.02, 0)
        m.output(m.quantise(m.node("Add", conv(middle, 8, 16), conv(first, 8, 16)), 0.1, 1))
        return m

    return make
