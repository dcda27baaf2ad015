"""hw/metrics.py and hw/stages.py: what is counted, and the table of stages."""

import pytest

from tests.hw.bench import Watch, instruction, script, simulate
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.hw.metrics import CIRCUIT, CLOCKED, COUNTERS, EVERY, FOLLOWED, TIMING, Kind, counters, hardware, metrics
from tilewright.hw.regs import registers
from tilewright.hw.rtl.latencies import NOTHING_LATENCY
from tilewright.hw.rtl.load import Load
from tilewright.hw.stages import stages, table
from tilewright.hw.units import units
from tilewright.runtime.registry import CIRCUITS, device_names

CONFIGS = [PRESETS["tiny"], PRESETS["vta"], PRESETS["tiny_two"]]


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_counters_are_the_registers_behind_cycles(cfg):
    found, named = metrics(cfg), registers(cfg)
    mine = [metric for metric in found.values() if metric.register]
    assert (
        [metric.register for metric in mine] == list(named)[list(named).index("CYCLES") :] == ["CYCLES", *counters(cfg)]
    )
    for metric in mine:
        assert (metric.doc, metric.name) == (named[metric.register].doc, metric.register.lower())
        assert metric.kind == Kind.COUNTER and metric.by == CLOCKED
    assert len(list(hardware(cfg))) == len(COUNTERS) * len(units(cfg))


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_every_metric_is_whole(cfg):
    found = metrics(cfg)
    for name, metric in found.items():
        assert name == metric.name == name.lower() and metric.unit and metric.doc
        assert (metric.over is not None) == (metric.kind == Kind.RATE)
        for part in metric.over or ():
            assert found[part].kind == Kind.COUNTER and set(metric.by) <= set(found[part].by)
        assert name.endswith("_high") == (metric.kind == Kind.HIGH_WATER)


def test_devices_are_the_registered_ones():
    assert sorted(EVERY) == sorted(device_names()) and CIRCUIT == CIRCUITS
    assert set(TIMING + CIRCUIT) == set(FOLLOWED) < set(CLOCKED) < set(EVERY)


def test_units_and_scratchpads_of_a_configuration_have_theirs():
    one, two, vta = (metrics(PRESETS[name]) for name in ("tiny", "tiny_two", "vta"))
    assert set(one) < set(two) and "ternary_busy" in two and "twgt_high" in two and "tokens_load_ternary_high" in two
    assert "par_high" in one and "par_high" not in vta


@pytest.mark.parametrize("cfg", PRESETS.values(), ids=lambda cfg: cfg.name)
def test_every_stage_has_a_latency_and_an_interval(cfg):
    assert all(s.latency >= 1 and s.interval >= 1 for s in stages(cfg))
    assert len(table(cfg).splitlines()) == len(stages(cfg)) + 2


def test_latency_of_a_nop():
    dut = Load(PRESETS["tiny"])
    nop = {"cmd.payload.insn": instruction(dut.cfg, "LOAD", op=Op.LOAD, mem=Mem.INP, push_next=1), "cmd.valid": 1}
    token = Watch(dut.to_compute.valid)
    simulate(dut, script(dut, (nop, {}), ({"cmd.valid": 0}, {}, 20)), background=[token])
    assert token.at()[0] == NOTHING_LATENCY
