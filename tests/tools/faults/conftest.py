"""A case on which faults are tried."""

import pytest

from tests.sim.conftest import machine
from tilewright.hw.config import PRESETS
from tilewright.sim.rtl.verilator import need_tools
from tools.faults.compare import random_program

__all__ = ["case", "machine"]


@pytest.fixture(scope="session")
def case():
    """A random program of `tiny` of a thousand cycles, with loads and stores of all kinds."""
    try:
        need_tools("g++")
    except Exception as exc:
        pytest.skip(str(exc))
    return random_program(PRESETS["tiny"], 3)
