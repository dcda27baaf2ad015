"""Runs of random programs on the timing model."""

import pytest

from tilewright.runtime.device import open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.sim.random_programs import Recorder, record_random


@pytest.fixture(scope="session")
def ran():
    """Runs a random program of a configuration and a seed: (executable, reports)."""

    def run(cfg, seed, count):
        recorder = Recorder(cfg, seed)
        record_random(recorder, count)
        executable = Executable.from_launch(recorder.program.finish())
        with Loaded(executable, open_device("timing", cfg)) as loaded:
            loaded.run(recorder.inputs)
            return executable, loaded.reports

    return run
