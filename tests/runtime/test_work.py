"""runtime/work.py: static counts of a program equal what the model counts while it executes."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Op
from tilewright.runtime.work import program_stats
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import random_case

TINY = PRESETS["tiny"]


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_an_execution(seed):
    image, address, count = random_case(TINY, seed)
    words = image[address : address + 16 * count].copy().view(np.uint64).reshape(-1, 2)
    executed = ModelDevice(TINY).run_image(image, address, count)
    found = program_stats(Isa(TINY), words)
    assert (found.insns, found.uops, found.macs) == (executed.insns, executed.uops, executed.macs)
    assert (found.bytes_loaded, found.bytes_stored) == (executed.bytes_loaded, executed.bytes_stored)


def test_micro_ops_that_end_before_they_begin_are_none():
    words = Isa(TINY).formats["GEMM"].encode(1, op=Op.GEMM, uop_bgn=7, uop_end=2, iter_out=3, iter_in=3)
    found = program_stats(Isa(TINY), words)
    assert (found.uops, found.macs) == (0, 0)


def test_what_cannot_be_decoded_is_not_counted():
    words = Isa(TINY).formats["FINISH"].encode(2, op=np.array([7, 3]))
    assert program_stats(Isa(TINY), words).insns == {"FINISH": 1}
