"""The programs by whose branches a simulation is compiled."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import NARROW, ODD
from tilewright.sim.rtl import device

PYNQ = PRESETS["pynq_z1"]


@pytest.mark.parametrize("cfg", [pytest.param(cfg, id=cfg.name) for cfg in (PYNQ, PRESETS["vta"], NARROW, ODD)])
def test_most_issues_of_a_rehearsal_are_products_between_loads_and_stores(cfg):
    image, address, count = device.products(cfg)
    stats = ModelDevice(cfg).run_image(image, address, count)
    products = cfg.batch * cfg.block_in * cfg.block_out
    assert stats.macs == products * (7 << 11)  # the first of eight parts sets to zero
    assert stats.uops < (8 << 11) + 1000
    assert set(stats.bytes_loaded) >= {"INP", "WGT"} and stats.bytes_stored.total()


def test_rehearsals_are_the_same_each_time():
    for (image, *where), (again, *there) in zip(device.cases(PYNQ), device.cases(PYNQ), strict=True):
        assert where == there
        np.testing.assert_array_equal(image, again)
