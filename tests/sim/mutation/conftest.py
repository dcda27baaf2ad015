"""Random programs."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.sim.random_programs import Recorder, record_random


@pytest.fixture(scope="session")
def program():
    """A maker of random launches of `tiny` with few instructions."""

    def make(seed=0, length=6):
        recorder = Recorder(PRESETS["tiny"], seed)
        record_random(recorder, length)
        return recorder.program.finish()

    return make
