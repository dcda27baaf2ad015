import numpy as np
import pytest

from tilewright.hw.errors import AccessError
from tilewright.hw.isa import Mem, Op

BASE = 400  # entries from the begin of DRAM, behind the instructions
LOADS = [Mem.INP, Mem.WGT, Mem.ACC, Mem.ACC8]


def random_load(rng, cfg, op, mem):
    sizes = {"y_size": rng.integers(0, 4), "x_size": rng.integers(0, 4), "x_stride": rng.integers(0, 9)}
    pads = {key: rng.integers(0, 3) for key in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
    value = {"pad_value": int(rng.integers(-128, 128))} if op == Op.LOADP else {}
    return {"op": op, "mem": mem, "sram_base": rng.integers(0, 8), "dram_base": BASE, **sizes, **pads, **value}


@pytest.mark.parametrize("mem", LOADS)
@pytest.mark.parametrize("seed", range(10))
def test_random_loads_equal_the_definition(kit, machine, agree, any_cfg, mem, seed):
    ops = [Op.LOAD, Op.LOADP] if "pad_value" in any_cfg.extensions else [Op.LOAD]
    if mem == Mem.ACC8 and "acc8" not in any_cfg.extensions:
        pytest.skip("extension acc8 is not in this configuration")
    small = any_cfg if any_cfg.name != "single" else any_cfg.replace(acc_bytes=1024, inp_bytes=256, wgt_bytes=256)
    m = machine(small, nbytes=1 << 18, seed=seed)
    agree(m, [random_load(m.rng, small, op, mem) for op in ops for _ in range(4)])


@pytest.mark.parametrize("seed", range(10))
def test_random_stores_equal_the_definition(kit, agree, any_cfg, seed):
    """Rows may overlap in DRAM: the later one is seen."""
    m, insns = kit.filled(any_cfg, seed)
    for _ in range(6):
        sizes = {"y_size": m.rng.integers(0, 4), "x_size": m.rng.integers(0, 5), "x_stride": m.rng.integers(0, 7)}
        base = 57344 // any_cfg.out_entry_bytes
        at = {"sram_base": m.rng.integers(0, 40), "dram_base": base + m.rng.integers(0, 40)}
        insns.append({"op": Op.STORE, "mem": Mem.OUT, **at, **sizes, "x_pad_0": 3, "y_pad_1": 2})
    agree(m, insns)


def test_no_columns_move_nothing_not_even_padding(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[...] = 5
    before = m.dram.copy()
    pads = {"y_pad_0": 2, "x_pad_0": 2, "y_size": 3}
    loads = [{"op": Op.LOAD, "mem": mem, **pads} for mem in (*LOADS, Mem.UOP)]
    stats = m.run([*loads, {"op": Op.STORE, "mem": Mem.UOP}])
    assert (m.model.state.acc == 5).all()
    assert not m.model.state.inp.any()
    np.testing.assert_array_equal(m.dram[256:], before[256:])
    assert not stats.bytes_loaded and not stats.bytes_stored


def test_no_rows_write_padding_only(kit, agree, machine):
    m = machine(kit.CONFIGS["tiny"])
    pads = {"x_pad_1": 1, "y_pad_0": 2, "pad_value": -7}
    filled = {"op": Op.LOAD, "mem": Mem.ACC, "dram_base": BASE, "y_size": 1, "x_size": 100}
    agree(m, [filled, {"op": Op.LOADP, "mem": Mem.ACC, "dram_base": 1 << 30, "x_size": 3, **pads}])
    assert (m.model.state.acc[:8] == -7).all()


def test_micro_ops_are_loaded_as_one_row_whatever_the_other_fields(kit, agree, machine):
    m = machine(kit.CONFIGS["tiny"])
    other = {"y_size": 7, "x_stride": 100, "y_pad_0": 3, "x_pad_0": 2, "x_pad_1": 1}
    stats = agree(m, [{"op": Op.LOAD, "mem": Mem.UOP, "sram_base": 3, "dram_base": 2000, "x_size": 11, **other}])
    assert stats.bytes_loaded == {"UOP": 44}
    assert m.model.state.uop[3:14].all()


def test_the_bytes_of_every_memory_are_counted(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    moved = {"y_size": 2, "x_size": 3, "x_stride": 3, "x_pad_0": 1, "dram_base": BASE}
    loads = [{"op": Op.LOAD, "mem": mem, **moved} for mem in LOADS]
    stats = m.run([*loads, {"op": Op.STORE, "mem": Mem.OUT, **moved}])
    assert stats.bytes_loaded == {"INP": 24, "WGT": 96, "ACC": 96, "ACC8": 24}
    assert stats.bytes_stored == {"OUT": 24}
    assert stats.insns["LOAD.ACC8"] == stats.insns["STORE.OUT"] == stats.insns["FINISH"] == 1


# fields, text; the tiny configuration has 256 micro-ops, 256 inputs of 4 bytes, 128 weights of 16, 128 accumulators
OUTSIDE = [
    ({"op": Op.LOAD, "mem": Mem.INP, "sram_base": 250, "y_size": 2, "x_size": 4, "dram_base": BASE},
     "INP entries 250..257 are outside 0..255"),
    ({"op": Op.LOAD, "mem": Mem.INP, "sram_base": 250, "y_size": 1, "x_size": 1, "x_pad_1": 8, "dram_base": BASE},
     "INP entries 250..258 are outside 0..255"),
    ({"op": Op.LOAD, "mem": Mem.WGT, "sram_base": 65535, "y_size": 1, "x_size": 1},
     "WGT entries 65535..65535 are outside 0..127"),
    ({"op": Op.LOAD, "mem": Mem.ACC8, "sram_base": 120, "y_size": 1, "x_size": 9, "dram_base": BASE},
     "ACC8 entries 120..128 are outside 0..127"),
    ({"op": Op.LOAD, "mem": Mem.UOP, "sram_base": 200, "x_size": 57}, "UOP entries 200..256 are outside 0..255"),
    ({"op": Op.STORE, "mem": Mem.OUT, "sram_base": 126, "y_size": 3, "x_size": 1},
     "OUT entries 126..128 are outside 0..127"),
    ({"op": Op.LOAD, "mem": Mem.INP, "dram_base": 16383, "y_size": 1, "x_size": 2},
     "DRAM bytes 0xfffc..0x10003 are outside 0..0xffff"),
    ({"op": Op.LOAD, "mem": Mem.ACC, "dram_base": 0, "y_size": 3, "x_size": 1, "x_stride": 2048},
     "DRAM bytes 0x0..0x1000f are outside 0..0xffff"),
    ({"op": Op.LOAD, "mem": Mem.UOP, "dram_base": 0xFFFFFFFF, "x_size": 1},
     "DRAM bytes 0x3fffffffc..0x3ffffffff are outside 0..0xffff"),
    ({"op": Op.STORE, "mem": Mem.OUT, "dram_base": 16380, "y_size": 1, "x_size": 5},
     "DRAM bytes 0xfff0..0x10003 are outside 0..0xffff"),
]  # fmt: skip


@pytest.mark.parametrize("fields, text", OUTSIDE, ids=[text for _, text in OUTSIDE])
def test_what_lies_outside_a_memory_is_named(kit, machine, fields, text):
    m = machine(kit.CONFIGS["tiny"])
    nop = {"op": Op.LOAD, "mem": Mem.UOP}
    with pytest.raises(AccessError) as caught:
        m.run([nop, fields])
    assert str(caught.value) == f"instruction 1 ({m.isa.disassemble(m.isa.decode(m.words([fields]))[0])}): {text}"
    assert caught.value.index == 1


def test_the_last_byte_of_dram_can_be_reached(kit, machine):
    m = machine(kit.CONFIGS["tiny"], nbytes=1027)  # not a whole number of entries
    m.run([{"op": Op.LOAD, "mem": Mem.INP, "dram_base": 255, "y_size": 1, "x_size": 1}])
    np.testing.assert_array_equal(m.model.state.inp[0].view(np.uint8), m.dram[1020:1024])
    with pytest.raises(AccessError, match="DRAM bytes 0x400..0x403 are outside 0..0x402"):
        m.run([{"op": Op.LOAD, "mem": Mem.INP, "dram_base": 256, "y_size": 1, "x_size": 1}])
