"""Runs operators as one launch on random values; every output equals the reference's."""

from functools import partial

import pytest

from tilewright.hw.config import PRESETS


@pytest.fixture
def launch(exact):
    """Runs `ops` on the accelerator alone and returns the launch; `data` are the values of inputs by name."""
    return partial(exact, cfg=PRESETS["pynq_z1_plus"])
