"""What the tests of hw share; tests/hw/bench.py has the vocabulary of those of circuits."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(1)
