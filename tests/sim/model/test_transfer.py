"""LOAD and STORE of the model as strided copies, against the definition."""

import numpy as np
import pytest

from tests.sim.conftest import CONFIGS, Machine, filled
from tests.sim.wrong import load, store
from tilewright.hw.isa import Mem, Op

BASE = 400  # entries from the begin of DRAM, behind the instructions
LOADS = [Mem.INP, Mem.WGT, Mem.ACC, Mem.ACC8]
TINY = CONFIGS["tiny"]


@pytest.mark.parametrize("seed", range(8))
def test_random_loads_equal_the_definition(agree, any_cfg, seed):
    large = {"acc_bytes": 1024, "inp_bytes": 256, "wgt_bytes": 256} if any_cfg.name == "single" else {}
    cfg = any_cfg.replace(**large)
    m, insns = Machine(cfg, nbytes=1 << 18, seed=seed), []
    for op in [Op.LOAD, Op.LOADP] if "pad_value" in cfg.extensions else [Op.LOAD]:
        for mem in [mem for mem in LOADS if mem != Mem.ACC8 or "acc8" in cfg.extensions] * 3:
            sizes = {"y_size": m.rng.integers(0, 4), "x_size": m.rng.integers(0, 4), "x_stride": m.rng.integers(0, 9)}
            pads = {key: m.rng.integers(0, 3) for key in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
            value = {"pad_value": m.rng.integers(-128, 128)} if op == Op.LOADP else {}
            place = {"op": op, "sram_base": m.rng.integers(0, 8), "dram_base": BASE}
            insns.append(load(mem, **sizes, **pads, **value) | place)
    agree(m, insns)


@pytest.mark.parametrize("seed", range(10))
def test_random_stores_equal_the_definition(agree, any_cfg, seed):
    """Rows may overlap in DRAM: the later one is seen."""
    m, insns = filled(any_cfg, seed)
    for _ in range(6):
        sizes = {"y_size": m.rng.integers(0, 4), "x_size": m.rng.integers(0, 5), "x_stride": m.rng.integers(0, 7)}
        base = 57344 // any_cfg.out_entry_bytes
        place = {"sram_base": m.rng.integers(0, 40), "dram_base": base + m.rng.integers(0, 40)}
        insns.append(store(Mem.OUT, **place, **sizes, x_pad_0=3, y_pad_1=2))
    agree(m, insns)


@pytest.mark.parametrize("name", ["tiny", "block16", "batch2", "wide_out", "single"])
@pytest.mark.parametrize("seed", range(10))
def test_random_requantising_stores_equal_the_definition(agree, name, seed):
    """Any parameters, rows that share them or not, rows that overlap in DRAM."""
    cfg = CONFIGS[name]
    cfg = cfg.replace(extensions=cfg.extensions | {"requant"}, par_entries=int(2 ** (seed % 4)))
    m, insns = filled(cfg, seed)
    m.dram[8192 + 64 : 8192 + 1024 : 8] = 0  # accumulators of any size
    m.dram[8192 + 65 : 8192 + 1024 : 8] = 0
    for _ in range(6):
        rows = m.rng.integers(1, 4)
        step = m.rng.integers(0, (cfg.par_entries - 1) // max(rows - 1, 1) + 1)
        sizes = {"y_size": rows, "x_size": m.rng.integers(0, 5), "x_stride": m.rng.integers(0, 7), "par_step": step}
        base = 57344 // cfg.out_entry_bytes
        place = {"sram_base": m.rng.integers(0, 30), "dram_base": base + m.rng.integers(0, 40)}
        insns.append(store(Mem.OUTQ, **place, **sizes, par_base=m.rng.integers(0, cfg.par_entries - (rows - 1) * step)))
    agree(m, insns)


def test_parameters_ignore_spare_bits_and_pads_and_micro_ops_are_one_row(agree):
    m, insns, pads = Machine(TINY), [], {"y_pad_0": 9, "x_pad_0": 3, "x_pad_1": 15}
    for _ in range(4):
        rows, columns = m.rng.integers(0, 3), m.rng.integers(0, 4)
        at = {"sram_base": m.rng.integers(0, 8 - max(rows * columns - 1, 0)), "dram_base": 100, "x_stride": 5}
        insns.append(load(Mem.PAR, **at | {"y_size": rows, "x_size": columns}, **pads))
    micro_ops = load(Mem.UOP, sram_base=3, dram_base=2000, y_size=7, x_size=11, x_stride=100, **pads)
    assert agree(m, [*insns, micro_ops]).bytes_loaded["UOP"] == 44
    assert m.model.state.uop[3:14].all()


def test_without_columns_nothing_moves_and_without_rows_padding_alone(agree):
    m, pads = Machine(TINY), {"y_pad_0": 2, "x_pad_0": 2, "y_size": 3}
    m.model.state.acc[...] = 5
    before = m.dram.copy()
    far = store(Mem.OUTQ, y_size=3, x_size=0, par_base=1000, sram_base=9999)
    stats = m.run([*[load(mem, x_size=0, **pads) for mem in (*LOADS, Mem.UOP, Mem.PAR)], store(Mem.UOP, x_size=0), far])
    assert (m.model.state.acc == 5).all() and not m.model.state.inp.any()
    np.testing.assert_array_equal(m.dram[256:], before[256:])
    assert not stats.bytes_loaded and not stats.bytes_stored
    m, padding = Machine(TINY), load(Mem.ACC, dram_base=1 << 30, y_size=0, x_size=3, x_pad_1=1, y_pad_0=2, pad_value=-7)
    agree(m, [load(Mem.ACC, dram_base=BASE, x_size=100), padding | {"op": Op.LOADP}])
    assert (m.model.state.acc[:8] == -7).all()


def test_the_bytes_of_every_memory_are_counted():
    moved = {"y_size": 2, "x_size": 3, "x_stride": 3, "dram_base": BASE}
    loads = [load(mem, **moved, x_pad_0=1) for mem in [*LOADS, Mem.PAR]]
    stats = Machine(TINY).run([*loads, store(Mem.OUT, **moved, x_pad_0=1), store(Mem.OUTQ, **moved)])
    assert stats.bytes_loaded == {"INP": 24, "WGT": 96, "ACC": 96, "ACC8": 24, "PAR": 6 * 48}
    assert stats.bytes_stored == {"OUT": 24, "OUTQ": 24}
    assert stats.insns["LOAD.ACC8"] == stats.insns["STORE.OUT"] == stats.insns["FINISH"] == 1


def test_the_last_bytes_of_a_memory_may_be_part_of_an_entry():
    m = Machine(TINY, nbytes=1027)
    m.run([load(Mem.INP, dram_base=255)])
    np.testing.assert_array_equal(m.model.state.inp[0].view(np.uint8), m.dram[1020:1024])
