"""A model in the making, and runs of a network one after the other, in LiteRT and by the golden interpreter."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference


@pytest.fixture
def m(tflite):
    """An empty `TfliteModel`."""
    return tflite()


@pytest.fixture
def litert_sequence():
    """Outputs of LiteRT's reference kernels for `inputs` of a network with one, in one interpreter."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def run(path, inputs):
        interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
        (first,) = interpreter.get_input_details()
        found = []
        for x in inputs:
            interpreter.set_tensor(first["index"], x)
            interpreter.invoke()
            found.append([interpreter.get_tensor(d["index"]).copy() for d in interpreter.get_output_details()])
        return [np.stack(column) for column in zip(*found)]

    return run


@pytest.fixture
def sequence():
    """Outputs of the golden interpreter for `inputs` of a network with one, state kept from one to the next."""

    def run(path, inputs, contract="double"):
        graph = import_tflite(path)
        state, found = reference.initial_state(graph), []
        for x in inputs:
            outputs, _ = reference.run(graph, {graph.inputs[0].name: x}, contract, state)
            found.append([outputs[t.name] for t in graph.outputs])
        return [np.stack(column) for column in zip(*found)]

    return run
