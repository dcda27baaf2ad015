"""sim/model/gemm.py beside the definition: loops, planes, packed weights."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Mem, Op
from tilewright.sim.model import gemm
from tilewright.sim.random_programs import ODD_TWO

TWO = PRESETS["tiny_two"]
CONFIGS = [TWO, ODD_TWO, TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=1 << 9)]
MODES = [{}, {}, {"reset": 1}, {"overwrite": 1}]
UOPS = 60000  # where the tests put micro-ops


def random_program(kit, cfg, seed):
    """Four instructions, of either unit."""
    m, insns = kit.filled(cfg, seed)
    for k in range(4):
        mode, both = MODES[int(m.rng.integers(len(MODES)))], m.rng.integers(4) > 0
        wgt, most = (cfg.twgt_depth, cfg.plane_depth) if both else (cfg.wgt_depth, cfg.acc_depth)
        uops = kit.random_uops(m.rng, 8) % (most, cfg.inp_depth, wgt)
        fields, uops = kit.random_loop(m.rng, (most, cfg.inp_depth, wgt), uops)
        uops[:, 0] += cfg.bank_depth * int(m.rng.integers(4)) if both else 0
        address = UOPS + 512 * k
        m.put_uops(uops, address)
        op, mem = (Op.TERNARY, Mem.TUOP) if both else (Op.GEMM, Mem.UOP)
        insns += [kit.load_uops(address, len(uops), mem), {"op": op, **fields, **mode}]
    return m, insns


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("seed", range(20))
def test_random_loops_equal_one_micro_op_after_the_other(kit, agree, cfg, seed):
    agree(*random_program(kit, cfg, seed))


@pytest.mark.parametrize("seed", range(10))
def test_results_do_not_depend_on_where_an_instruction_is_cut(kit, agree, monkeypatch, seed):
    monkeypatch.setattr(gemm, "_ELEMENTS", 7)
    agree(*random_program(kit, TWO, seed))


def test_weights_are_two_bits_and_padded_with_zeros(machine, agree):
    m = machine(TWO)
    m.dram[4096:4112] = np.arange(16) * 17
    load = {"op": Op.LOAD, "mem": Mem.TWGT.id, "sram_base": 3, "dram_base": 256, "y_size": 1, "x_size": 1}
    agree(m, [{**load, "x_pad_0": 1, "y_pad_1": 1}])
    twgt = m.scratchpads()["twgt"]
    assert not twgt[[3, 5, 6]].any()
    assert twgt[4, :4].tolist() == [[0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0], [-1, 0, -1, 0]]


def test_micro_ops_of_one_unit_are_not_those_of_the_other(machine, agree):
    m = machine(TWO)
    m.put_uops([(5, 1, 2)], UOPS)
    agree(m, [{"op": Op.LOAD, "mem": Mem.TUOP.id, "sram_base": 9, "dram_base": UOPS // 4, "x_size": 1}])
    assert m.model.state.tuop[9] and not m.model.state.uop.any()


WRONG = [
    ({"dst_in": 8}, "ACC entry 8 is not in the first plane of a bank, 8 of every 32 entries"),
    ({"dst_in": 100}, "ACC entries 0..200 are outside 0..127"),
    ({"src_in": 128}, "INP entries 0..256 are outside 0..255"),
    ({"wgt_in": 64}, "TWGT entries 0..128 are outside 0..127"),
    ({"uop_end": 257}, "micro-ops 0..256 are outside 0..255"),
    ({"reset": 1, "dst_in": 31}, "ACC entry 31 is not in the first plane"),
]


@pytest.mark.parametrize("fields, text", WRONG, ids=[text[:30] for _, text in WRONG])
def test_indices_outside_are_named(machine, fields, text):
    m = machine(TWO)
    with pytest.raises(AccessError, match=text.replace("(", r"\(")):
        m.run([{"op": Op.TERNARY, "uop_end": 1, "iter_out": 1, "iter_in": 3, **fields}])
    assert not m.model.state.acc.any()


def test_the_largest_sums_are_exact(machine):
    """All inputs -128, all weights -1: 256 inputs of 4 elements, 1000 times."""
    m = machine(TWO)
    m.model.state.inp[...], m.model.state.twgt[...] = -128, -1
    m.run([{"op": Op.TERNARY, "uop_end": 1, "iter_out": 1000, "iter_in": 256, "src_in": 1}])
    acc = m.model.state.acc
    assert (acc[[0, 8, 16, 24]] == 128 * 4 * 256 * 1000).all() and np.count_nonzero(acc) == 16
