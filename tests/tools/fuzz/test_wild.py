"""tools/fuzz/wild.py: definition, model and circuit end alike on instructions with any values in their fields: with the
same memory, or the same error at the same instruction."""

import shutil

import pytest

from tilewright.hw.config import PRESETS
from tilewright.sim.dram import Dram
from tilewright.sim.random_programs import ODD, ODD_TWO, ROWS
from tools.fuzz.compare import Devices, Found
from tools.fuzz.programs import Generated, Writer

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def compare(cfg, seeds, other):
    """Run program after program on the model and on `other`; both start from zero after an error.

    Returns how many ended well.
    """
    devices, found = None, Found()
    for seed in seeds:
        print(f"{cfg.name} seed {seed}")
        if devices is None or not devices.usable:
            devices = Devices(cfg, Dram.random(seed), circuit=other == "circuit", define=other == "definition")
        differs = devices.difference(Generated(seed, *Writer(cfg, seed).program(), legal=False), found)
        assert differs is None, f"{cfg.name} seed {seed}: {differs}"
    return found.programs - found.refused


@pytest.mark.parametrize("other", ["definition", pytest.param("circuit", marks=needs_compiler)])
@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ODD, ROWS, PRESETS["tiny_two"]], ids=lambda c: c.name)
def test_both_end_alike(cfg, other):
    well = compare(cfg, range(150), other)
    assert 30 < well < 120


@pytest.mark.slow
@pytest.mark.parametrize("other", ["definition", pytest.param("circuit", marks=needs_compiler)])
@pytest.mark.parametrize("chunk", range(10))
@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ODD, PRESETS["tiny_two"], ODD_TWO], ids=lambda c: c.name)
def test_both_end_alike_on_many(cfg, chunk, other):
    compare(cfg, range(1000 + 200 * chunk, 1200 + 200 * chunk), other)
