"""A case on which faults are tried."""

import pytest

from tilewright.hw.config import PRESETS
from tools.faults.compare import Case, random_program


@pytest.fixture(scope="session")
def case() -> Case:
    """A random program of `tiny` of a thousand cycles, with loads and stores of all kinds."""
    return random_program(PRESETS["tiny"], 3)
