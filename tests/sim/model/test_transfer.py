import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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


QUANTISED = ["tiny", "block16", "batch2", "wide_out", "single"]


@pytest.mark.parametrize("name", QUANTISED)
@pytest.mark.parametrize("seed", range(10))
def test_random_requantising_stores_equal_the_definition(kit, agree, name, seed):
    """Any parameters, rows that share them or not, rows that overlap in DRAM."""
    cfg = kit.CONFIGS[name]
    cfg = cfg.replace(extensions=cfg.extensions | {"requant"}, par_entries=int(2 ** (seed % 4)))
    m, insns = kit.filled(cfg, seed)
    m.dram[8192 + 64 : 8192 + 1024 : 8] = 0  # accumulators of any size
    m.dram[8192 + 65 : 8192 + 1024 : 8] = 0
    for _ in range(6):
        rows = m.rng.integers(1, 4)
        step = m.rng.integers(0, (cfg.par_entries - 1) // max(rows - 1, 1) + 1)
        sizes = {"y_size": rows, "x_size": m.rng.integers(0, 5), "x_stride": m.rng.integers(0, 7), "par_step": step}
        first = m.rng.integers(0, cfg.par_entries - (rows - 1) * step)
        base = 57344 // cfg.out_entry_bytes
        at = {"sram_base": m.rng.integers(0, 30), "dram_base": base + m.rng.integers(0, 40), "par_base": first}
        insns.append({"op": Op.STORE, "mem": Mem.OUTQ, **at, **sizes})
    agree(m, insns)


@pytest.mark.parametrize("seed", range(5))
def test_random_loads_of_parameters_equal_the_definition(kit, machine, agree, seed):
    """The spare bits are ignored, and so are the pads."""
    m, insns = machine(kit.CONFIGS["tiny"], seed=seed), []
    for _ in range(4):
        rows, columns = m.rng.integers(0, 3), m.rng.integers(0, 4)
        at = {"sram_base": m.rng.integers(0, 8 - max(rows * columns - 1, 0)), "dram_base": 100, "x_stride": 5}
        pads = {"y_pad_0": 9, "x_pad_0": 3, "x_pad_1": 15}
        insns.append({"op": Op.LOAD, "mem": Mem.PAR, "y_size": rows, "x_size": columns, **at, **pads})
    agree(m, insns)


def quantise(kit, machine, acc, **parameters):
    """The bytes that a requantising store writes of the accumulators `acc` with the parameters of one channel."""
    m = machine(kit.CONFIGS["single"], nbytes=1 << 12)
    acc = np.asarray(acc)
    m.model.state.acc[: len(acc), 0] = acc
    for name, value in parameters.items():
        m.model.state.par[name][0] = value
    m.run([{"op": Op.STORE, "mem": Mem.OUTQ, "dram_base": 2048, "y_size": 1, "x_size": len(acc), "x_stride": 64}])
    return m.dram[2048 : 2048 + len(acc)].view(np.int8).tolist()


EDGES = [0, 1, -1, 2, -2, 3, 127, -128, 1 << 30, -(1 << 30), (1 << 31) - 1, -(1 << 31)]


@pytest.mark.circuit
@given(
    acc=st.lists(st.sampled_from(EDGES) | st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=8),
    bias=st.sampled_from([*EDGES, 1 << 30, -(1 << 30)]) | st.integers(-(1 << 31), (1 << 31) - 1),
    multiplier=st.sampled_from([0, 1, 1 << 30, (1 << 31) - 1]) | st.integers(0, (1 << 31) - 1),
    exponent=st.integers(-32, 31),
    zero_point=st.integers(-128, 127),
    low=st.integers(-128, 127),
    high=st.integers(-128, 127),
    mode=st.integers(0, 1),
)
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example([5, -5], 1 << 30, 0, 0, 3, -128, 127, 0)
@example([(1 << 31) - 1, -(1 << 31)], 1 << 30, (1 << 31) - 1, 31, 127, -128, 127, 1)
@example([(1 << 31) - 1, -(1 << 31)], -(1 << 30), (1 << 31) - 1, 30, -128, -128, 127, 0)
@example([0, 9], 0, 1 << 30, 1, 0, 5, -5, 0)
def test_requantisation_is_exact(kit, machine, acc, bias, multiplier, exponent, zero_point, low, high, mode):
    fields = {"bias": bias, "multiplier": multiplier, "exponent": exponent, "mode": mode}
    got = quantise(kit, machine, acc, **fields, zero_point=zero_point, low=low, high=high)
    for value, q in zip(acc, got):
        total = (value + bias + 2**31) % 2**32 - 2**31
        assert q == min(max(kit.scaled(total, multiplier, exponent, mode) + zero_point, low), high)


def test_no_columns_move_nothing_not_even_padding(kit, machine):
    m = machine(kit.CONFIGS["tiny"])
    m.model.state.acc[...] = 5
    before = m.dram.copy()
    pads = {"y_pad_0": 2, "x_pad_0": 2, "y_size": 3}
    loads = [{"op": Op.LOAD, "mem": mem, **pads} for mem in (*LOADS, Mem.UOP, Mem.PAR)]
    far = {"op": Op.STORE, "mem": Mem.OUTQ, "y_size": 3, "par_base": 1000, "sram_base": 9999}
    stats = m.run([*loads, {"op": Op.STORE, "mem": Mem.UOP}, far])
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
    loads = [{"op": Op.LOAD, "mem": mem, **moved} for mem in [*LOADS, Mem.PAR]]
    quantised = {key: value for key, value in moved.items() if key != "x_pad_0"}
    stats = m.run([*loads, {"op": Op.STORE, "mem": Mem.OUT, **moved}, {"op": Op.STORE, "mem": Mem.OUTQ, **quantised}])
    assert stats.bytes_loaded == {"INP": 24, "WGT": 96, "ACC": 96, "ACC8": 24, "PAR": 6 * 48}
    assert stats.bytes_stored == {"OUT": 24, "OUTQ": 24}
    assert stats.insns["LOAD.ACC8"] == stats.insns["STORE.OUT"] == stats.insns["FINISH"] == 1


def test_the_last_byte_of_dram_can_be_reached(kit, machine):
    m = machine(kit.CONFIGS["tiny"], nbytes=1027)  # not a whole number of entries
    m.run([{"op": Op.LOAD, "mem": Mem.INP, "dram_base": 255, "y_size": 1, "x_size": 1}])
    np.testing.assert_array_equal(m.model.state.inp[0].view(np.uint8), m.dram[1020:1024])
    with pytest.raises(AccessError, match="DRAM bytes 0x400..0x403 are outside 0..0x402"):
        m.run([{"op": Op.LOAD, "mem": Mem.INP, "dram_base": 256, "y_size": 1, "x_size": 1}])
