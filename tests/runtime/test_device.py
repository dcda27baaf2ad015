"""runtime/device.py: statistics, and devices opened by name."""

import json
from collections import Counter

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.isa import Isa, Op
from tilewright.runtime.device import Stats, open_device, program_stats, without_addresses
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ROWS, random_case

TINY = PRESETS["tiny"]


def test_statistics_add_up():
    first = Stats(Counter({"GEMM": 2}), 10, 160, Counter({"INP": 64}), Counter({"OUT": 4}))
    second = Stats(Counter({"GEMM": 1, "FINISH": 1}), 5, 80, Counter({"WGT": 16}), Counter({"OUT": 8}))
    total = first + second
    assert total == Stats(
        Counter({"GEMM": 3, "FINISH": 1}), 15, 240, Counter({"INP": 64, "WGT": 16}), Counter({"OUT": 12})
    )
    assert first == Stats(Counter({"GEMM": 2}), 10, 160, Counter({"INP": 64}), Counter({"OUT": 4}))
    assert Stats() + first == first


def test_what_a_device_saw_of_one_launch_is_not_that_of_two():
    seen = Stats(observed=lambda: {"read_bursts": {"16": 1}})
    alone = seen + Stats()
    assert alone.observed is not None and alone.observed() == {"read_bursts": {"16": 1}}
    assert (seen + seen).observed is None


def test_statistics_are_json_with_totals():
    stats = Stats(Counter({"GEMM": 3, "FINISH": 1}), 15, 240, Counter({"INP": 64, "WGT": 16}), Counter({"OUT": 12}))
    found = stats.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "instructions": 4,
        "micro_ops": 15,
        "macs": 240,
        "bytes_loaded": 80,
        "bytes_stored": 12,
        "by_instruction": {"GEMM": 3, "FINISH": 1},
        "loaded_by_memory": {"INP": 64, "WGT": 16},
        "stored_by_memory": {"OUT": 12},
    }


def test_a_device_is_opened_by_its_name():
    opened = open_device("model", TINY)
    assert isinstance(opened, ModelDevice) and opened.cfg is TINY
    known = "board, model, rtl, rtl_fast, spec, timing"
    with pytest.raises(UnsupportedError, match=f"unknown device 'nowhere'; known are {known}"):
        open_device("nowhere", TINY)


def test_every_tap_counts():
    words = Isa(ROWS).formats["DWGEMM"].encode(1, op=Op.DWGEMM, extra_taps=2, uop_end=2, iter_out=3, iter_in=5)
    found = program_stats(Isa(ROWS), words)
    assert (found.uops, found.macs) == (30, 30 * 3 * 8)


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


def test_counts_do_not_depend_on_addresses(cache):
    launch = cache().launch
    isa = Isa(launch.cfg)
    near, far = (launch.relocate([1 << n] * len(launch.buffers), {"position": n}) for n in (6, 12))
    assert not np.array_equal(near, far)
    text = without_addresses(isa, far)
    np.testing.assert_array_equal(without_addresses(isa, near), text)
    assert program_stats(isa, text).to_dict() == program_stats(isa, far).to_dict()
    assert [f.get("dram_base", 0) for f in isa.decode(text)] == [0] * len(text)
    rest = [{**f, "dram_base": 0} for f in isa.decode(far)]
    assert [{**f, "dram_base": 0} for f in isa.decode(text)] == rest
