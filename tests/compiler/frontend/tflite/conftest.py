"""A model in the making, and runs of a network one after the other, in LiteRT and by the golden interpreter."""

import numpy as np
import pytest


@pytest.fixture
def m(tflite):
    """An empty `TfliteModel`."""
    return tflite()


def stacked(runs):
    return [np.stack(column) for column in zip(*runs)]


@pytest.fixture
def litert_sequence(litert):
    """Outputs of LiteRT's reference kernels for `inputs` of a network with one, in one interpreter."""
    return lambda path, inputs: stacked(litert(path, [[x] for x in inputs]))


@pytest.fixture
def sequence(golden):
    """Outputs of the golden interpreter for `inputs` of a network with one, state kept from one to the next."""
    return lambda path, inputs, contract="double": stacked(golden(path, [[x] for x in inputs], contract))
