"""Runs operators as one launch on random values; every output equals the reference's."""

from dataclasses import replace
from functools import partial

import pytest

from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict


@pytest.fixture
def launch(exact):
    """Runs `ops` on the accelerator alone and returns the launch; `data` are the values of inputs by name."""
    return partial(exact, cfg=PRESETS["pynq_z1_plus"])


@pytest.fixture
def added(launch):
    """The cycles that a second operator of the kind of `op`, which reads the first's output, adds to a launch."""

    def run(op, **options):
        first = replace(op, name="first", output=replace(op.output, name="first"))
        second = replace(op, inputs=(first.output, *op.inputs[1:]))
        return predict(launch(first, second, **options)).cycles - predict(launch(first, **options)).cycles

    return run
