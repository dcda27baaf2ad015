"""Interpreters with and without the delegate, and networks for them."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tvm")

from tests.compiler import conftest as compiler
from tests.compiler.kernels import conftest as quantised

tflite, network = compiler.tflite, quantised.network


@pytest.fixture
def interpreter():
    """A maker of interpreters of LiteRT with its reference kernels, ready for inputs."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def make(path, *delegates, **options):
        resolver = OpResolverType.BUILTIN_REF
        made = Interpreter(
            str(path), experimental_delegates=list(delegates), experimental_op_resolver_type=resolver, **options
        )
        made.allocate_tensors()
        return made

    return make


def outputs(made, *inputs):
    """The outputs for inputs in the file's order."""
    for detail, x in zip(made.get_input_details(), inputs, strict=True):
        made.set_tensor(detail["index"], x)
    made.invoke()
    return [made.get_tensor(detail["index"]).copy() for detail in made.get_output_details()]


@pytest.fixture
def run():
    """Runs an interpreter on inputs in the file's order; gives its outputs."""
    return outputs


@pytest.fixture
def equal(interpreter):
    """Asserts that a delegate's interpreter gives the bytes of the reference kernels, for random inputs."""

    def check(path, *delegates, runs=2):
        mine, reference, rng = interpreter(path, *delegates), interpreter(path), np.random.default_rng(5)
        for _ in range(runs):
            given = [rng.integers(-128, 128, d["shape"]).astype(d["dtype"]) for d in reference.get_input_details()]
            for found, expected in zip(outputs(mine, *given), outputs(reference, *given), strict=True):
                assert len(np.unique(expected)) > 2  # outputs that are all alike prove nothing
                np.testing.assert_array_equal(found, expected)
        return mine

    return check
