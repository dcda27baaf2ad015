"""boards/selftest.py: right on the model, whatever the widths; wrong where one bit is."""

import numpy as np
import pytest

from tilewright.boards.selftest import self_test
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run

TINY = PRESETS["tiny"]
NARROW = TINY.replace(
    name="narrow", inp_bits=4, wgt_bits=2, out_bits=4, block_in=8, block_out=8, extensions=frozenset()
)
CONFIGS = [*PRESETS.values(), NARROW, TINY.replace(name="batch", batch=2, inp_bytes=512, acc_bytes=4096)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_the_model_gives_what_is_expected(cfg, seed):
    launch, inputs, expected = self_test(cfg, seed)
    found, _ = run(launch, inputs)
    np.testing.assert_array_equal(found["y"], expected["y"])
    assert len(np.unique(expected["y"])) > 1  # it can be wrong
