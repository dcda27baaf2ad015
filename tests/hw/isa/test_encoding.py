"""hw/isa/encoding.py: words of bit fields, round trips of every format, decoder and disassembler."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.config import PAR_BYTES, PRESETS, Config
from tilewright.hw.errors import ConfigError, EncodingError
from tilewright.hw.isa import (
    PAR,
    AluOp,
    Field,
    Format,
    Isa,
    Mem,
    Op,
)
from tilewright.hw.units import queues

VTA, PYNQ, TINY = PRESETS["vta"], PRESETS["pynq_z1"], PRESETS["tiny"]


PLUS, TWO = PRESETS["pynq_z1_plus"], PRESETS["tiny_two"]
FOUR = PYNQ.replace(name="four", extensions=PYNQ.extensions | {"wgt4"})


BATCH4 = Config(
    "batch4",
    4,
    8,
    8,
    uop_bytes=1 << 15,
    inp_bytes=1 << 16,
    wgt_bytes=1 << 16,
    acc_bytes=1 << 18,
    extensions=frozenset(),
)


UNEQUAL = Config("unequal", 2, 16, 32, wgt_bits=4, inp_bytes=1 << 14, wgt_bytes=1 << 16, acc_bytes=1 << 16)


CONFIGS = {cfg.name: cfg for cfg in (VTA, PYNQ, TINY, BATCH4, UNEQUAL)}


HEAD = {"op": (2, 0), "pop_prev": (3, 3), "pop_next": (4, 4), "push_prev": (5, 5), "push_next": (6, 6)}


ADDRESS = {"mem": (9, 7), "sram_base": (25, 10), "dram_base": (57, 26)}


WIDE = {"y_size": (79, 64), "x_size": (95, 80), "x_stride": (111, 96)}


PADS = {"y_pad_0": (115, 112), "y_pad_1": (119, 116), "x_pad_0": (123, 120), "x_pad_1": (127, 124)}


LOOPS = {"reset": (7, 7), "uop_bgn": (20, 8), "uop_end": (34, 21), "iter_out": (48, 35), "iter_in": (62, 49)}


STEPS = {"dst_out": (74, 64), "dst_in": (85, 75), "src_out": (96, 86), "src_in": (107, 97)}


WGT_STEPS = {"wgt_out": (117, 108), "wgt_in": (127, 118)}


# (highest, lowest) bit of every field at VTA's default sizes, from its published layout.
VTA_BITS = {
    "LOAD": HEAD | ADDRESS | WIDE | PADS,
    "STORE": HEAD | ADDRESS | WIDE | PADS,
    "GEMM": HEAD | LOOPS | STEPS | WGT_STEPS,
    "ALU": HEAD | LOOPS | STEPS | {"alu_op": (110, 108), "use_imm": (111, 111), "imm": (127, 112)},
    "FINISH": HEAD,
    "UOP": {"dst": (10, 0), "src": (21, 11), "wgt": (31, 22)},
}


# The extensions' encodings do not depend on the sizes, but for the loops and steps of DWGEMM.
EXTENSION_BITS = {
    "LOADP": HEAD
    | ADDRESS
    | {"y_size": (75, 64), "x_size": (87, 76), "x_stride": (103, 88)}
    | {"y_pad_0": (107, 104), "y_pad_1": (111, 108), "x_pad_0": (115, 112), "x_pad_1": (119, 116)}
    | {"pad_value": (127, 120)},
    "STOREQ": HEAD | ADDRESS | WIDE | {"par_base": (121, 112), "par_step": (127, 122)},
    "PAR": {"bias": (31, 0), "multiplier": (62, 32), "exponent": (68, 63), "zero_point": (76, 69)}
    | {"low": (84, 77), "high": (92, 85), "mode": (93, 93)},
}


def bits(fmt: Format) -> dict[str, tuple[int, int]]:
    return {f.name: (f.lo + f.bits - 1, f.lo) for f in fmt.fields.values()}


@pytest.mark.parametrize("name", VTA_BITS)
@pytest.mark.parametrize("cfg", [VTA, BATCH4], ids=lambda c: c.name)
def test_base_formats_are_vtas_bit_for_bit(cfg, name):
    assert bits(Isa(cfg).formats[name]) == VTA_BITS[name]


@pytest.mark.parametrize("name", EXTENSION_BITS)
@pytest.mark.parametrize("cfg", CONFIGS.values(), ids=lambda c: c.name)
def test_extension_formats(cfg, name):
    assert bits(Isa(cfg).formats[name]) == EXTENSION_BITS[name]


def test_overwrite_is_bit_63_and_only_with_the_extension():
    for name in ("GEMM", "DWGEMM"):
        assert "overwrite" not in Isa(VTA).formats[name].fields
        for cfg in (PYNQ, TINY, VTA.replace(extensions=["overwrite"])):
            assert bits(Isa(cfg).formats[name])["overwrite"] == (63, 63)


def test_extra_taps_lie_below_overwrite_and_only_with_the_extension():
    plus = PRESETS["pynq_z1_plus"]
    tiny = TINY.replace(extensions=TINY.extensions | {"depthwise_rows"})
    assert (plus.row_taps, tiny.row_taps, PYNQ.row_taps) == (4, 2, 1)
    for cfg, lowest, without in ((plus, 61, PYNQ), (tiny, 62, TINY)):
        dwgemm = bits(Isa(cfg).formats["DWGEMM"])
        assert dwgemm.pop("extra_taps") == (62, lowest)
        assert dwgemm == bits(Isa(without).formats["DWGEMM"]) == bits(Isa(cfg).formats["GEMM"])


def test_widths_follow_the_depths():
    # depths of tiny: 256 micro-ops, 256 inputs, 128 weights, 128 accumulators
    expected = {
        "uop_bgn": (15, 8),
        "uop_end": (24, 16),
        "iter_out": (38, 25),
        "iter_in": (52, 39),
        "overwrite": (63, 63),
    }
    expected |= {"dst_out": (70, 64), "dst_in": (77, 71), "src_out": (85, 78), "src_in": (93, 86)}
    expected |= {"wgt_out": (100, 94), "wgt_in": (107, 101)}
    assert bits(Isa(TINY).formats["GEMM"]) == HEAD | {"reset": (7, 7)} | expected
    assert bits(Isa(TINY).uop) == {"dst": (6, 0), "src": (14, 7), "wgt": (21, 15)}
    # without `overwrite` at bit 63 the steps follow iter_in at once, as C packs them
    alu = bits(Isa(TINY).formats["ALU"])
    assert (alu["dst_out"], alu["dst_in"], alu["src_in"], alu["imm"]) == ((59, 53), (70, 64), (86, 79), (106, 91))


# The stream of VTA's test vector alu_add_imm: 8x8 entries, add -77.
WORKED = [
    (0x0000002100000180, 0x0000004000400001),
    (0x0000001000000000, 0x0000000100010001),
    (0x0010004000200044, 0xFFB3A00202000808),
    (0x0000008C00000229, 0x0000004000400001),
    (0x0000000000000140, 0),
    (0x0000000000000018, 0),
    (0x0000000000000003, 0),
]


WORKED_FIELDS = [
    dict(op=Op.LOAD, mem=Mem.ACC, dram_base=2112, y_size=1, x_size=64, x_stride=64),
    dict(op=Op.LOAD, mem=Mem.UOP, dram_base=1024, y_size=1, x_size=1, x_stride=1),
    dict(op=Op.ALU, push_next=1, uop_end=1, iter_out=8, iter_in=8, dst_out=8, dst_in=1, src_out=8, src_in=1)
    | dict(alu_op=AluOp.ADD, use_imm=1, imm=-77),
    dict(op=Op.STORE, pop_prev=1, push_prev=1, mem=Mem.OUT, dram_base=8960, y_size=1, x_size=64, x_stride=64),
    dict(op=Op.LOAD, push_next=1, mem=Mem.INP),
    dict(op=Op.LOAD, pop_prev=1, pop_next=1, mem=Mem.UOP),
    dict(op=Op.FINISH),
]


@pytest.mark.parametrize("k", range(len(WORKED)))
def test_worked_words_encode_and_decode(k):
    lo, hi = WORKED[k]
    values = WORKED_FIELDS[k]
    isa = Isa(VTA)
    fmt = isa.formats[values["op"].name]
    np.testing.assert_array_equal(fmt.encode(**values), np.array([[lo, hi]], np.uint64))
    decoded = isa.decode(np.array([[lo, hi]], np.uint64))[0]
    assert decoded == dict.fromkeys(fmt.fields, 0) | {key: int(v) for key, v in values.items()}
    assert isa.undecodable(decoded) is None


def test_a_word_is_little_endian_in_memory():
    word = Isa(VTA).formats["LOAD"].encode(op=Op.LOAD, mem=Mem.ACC, x_pad_1=0xF, sram_base=0xFFFF)
    assert word.astype("<u8").tobytes().hex() == "80fdff03000000000000000000" + "0000f0"


@pytest.mark.parametrize("cfg", CONFIGS.values(), ids=lambda c: c.name)
def test_no_field_overlaps_and_none_of_an_instruction_straddles_a_64_bit_boundary(cfg):
    for name, fmt in Isa(cfg).formats.items():
        used = 0
        for high, low in bits(fmt).values():
            mask = (1 << high + 1) - (1 << low)
            assert high // 64 == low // 64 or name == "PAR"
            assert not used & mask
            used |= mask
        assert used < 1 << fmt.width


def _values(f: Field):
    low, high = f.limits
    return st.one_of(st.sampled_from([low, high, 0]), st.integers(low, high))


@st.composite
def columns(draw):
    """A format of one configuration and n values of each of its fields."""
    cfg = draw(st.sampled_from(list(CONFIGS.values())))
    fmt = draw(st.sampled_from(list(Isa(cfg).formats.values())))
    n = draw(st.integers(1, 5))
    return fmt, n, {f.name: draw(st.lists(_values(f), min_size=n, max_size=n)) for f in fmt.fields.values()}


@given(columns())
def test_encoding_round_trips_and_agrees_with_integer_arithmetic(case):
    fmt, n, values = case
    words = fmt.encode(n, **values)
    assert words.dtype == np.uint64
    assert words.shape == (n, (fmt.width + 63) // 64)
    for k in range(n):
        number = sum(value << f.lo for f, value in fmt.fixed.items())
        number += sum((v[k] % (1 << fmt.fields[key].bits)) << fmt.fields[key].lo for key, v in values.items())
        assert [int(w) for w in words[k]] == [number >> 64 * i & (1 << 64) - 1 for i in range(words.shape[1])]
    assert {key: v.tolist() for key, v in fmt.decode(words).items()} == values


@given(st.sampled_from(list(CONFIGS)), st.lists(st.tuples(*[st.integers(0, (1 << 64) - 1)] * 2), max_size=20))
def test_any_words_decode_or_say_why_not(name, pairs):
    isa = Isa(CONFIGS[name])
    for fields in isa.decode(np.array(pairs, np.uint64).reshape(-1, 2)):
        why = isa.undecodable(fields)
        line = isa.disassemble(fields)
        assert why is None or why
        assert line and "\n" not in line
        if why is None:
            assert isa.queue(fields) in queues(isa.cfg)


def test_decode_picks_the_format_of_each_instruction():
    isa = Isa(PYNQ)
    f = isa.formats
    words = np.concatenate(
        [
            f["STOREQ"].encode(op=Op.STORE, mem=Mem.OUTQ, par_base=1023, par_step=63),
            f["LOADP"].encode(op=Op.LOADP, mem=Mem.INP, pad_value=-128, x_size=4095),
            f["STORE"].encode(op=Op.STORE, mem=Mem.OUT, x_size=7),
            f["DWGEMM"].encode(op=Op.DWGEMM, overwrite=1),
            f["TERNARY"].encode(op=Op.TERNARY, reset=1, wgt_in=5),
        ]
    )
    storeq, loadp, store, dwgemm, ternary = isa.decode(words)
    assert (storeq["par_base"], storeq["par_step"]) == (1023, 63)
    assert (loadp["pad_value"], loadp["x_size"]) == (-128, 4095)
    assert "par_base" not in store
    assert dwgemm["overwrite"] == 1
    assert (ternary["reset"], ternary["wgt_in"]) == (1, 5)


# configuration, fields, reason (None: decodable)
DECODABLE = [
    (PYNQ, {"op": Op.TERNARY}, "unit ternary is not in configuration pynq_z1"),
    (VTA, {"op": Op.LOAD, "mem": Mem.TWGT.id}, "unit ternary is not in configuration vta"),
    (PYNQ, {"op": Op.LOAD, "mem": Mem.TUOP.id}, "unit ternary is not in configuration pynq_z1"),
    (TWO, {"op": Op.TERNARY, "reset": 1, "overwrite": 1}, "reset and overwrite are both set"),
    (TWO, {"op": Op.TERNARY, "pop_prev": 1, "pop_next": 1, "push_prev": 1, "push_next": 1}, None),
    (TWO, {"op": Op.LOAD, "mem": Mem.TWGT.id, "pop_prev": 1}, None),
    (TWO, {"op": Op.STORE, "mem": Mem.OUT, "pop_next": 1}, None),
    (TWO, {"op": Op.LOADP, "mem": Mem.TWGT.id}, "memory id 4 cannot be loaded by LOADP"),
    (PYNQ, {"op": Op.LOADP, "mem": Mem.UOP}, "memory id 0 cannot be loaded by LOADP"),
    (PYNQ, {"op": Op.LOADP, "mem": Mem.WGT4.id}, "extension wgt4 is not in configuration pynq_z1"),
    (FOUR, {"op": Op.LOADP, "mem": Mem.WGT4.id}, None),
    (FOUR.replace(name="lean", extensions=["pad_value"]), {"op": Op.LOADP, "mem": Mem.WGT4.id},
     "extension wgt4 is not in configuration lean"),
    (VTA, {"op": Op.STORE, "mem": Mem.ACC}, "memory id 3 cannot be stored"),
    (PLUS, {"op": Op.ALU, "alu_op": 6, "use_imm": 0}, "LOOKUP without use_imm: its operand is a table"),
    (PLUS, {"op": Op.ALU, "alu_op": 6, "use_imm": 1, "imm": 4}, "LOOKUP with imm 4: tables are 0 to 3"),
    (PLUS, {"op": Op.ALU, "alu_op": 6, "use_imm": 1, "imm": 3}, None),
    (PLUS, {"op": Op.ALU, "alu_op": 7, "use_imm": 1, "imm": -1}, "REDUCE with imm -1: reductions are 0 to 1"),
    (PLUS, {"op": Op.ALU, "alu_op": 7, "use_imm": 1, "imm": 1}, None),
    (PYNQ, {"op": Op.GEMM, "overwrite": 1, "reset": 1}, "reset and overwrite are both set"),
    (PYNQ, {"op": Op.DWGEMM, "overwrite": 1, "reset": 1}, "reset and overwrite are both set"),
    (PYNQ, {"op": Op.GEMM, "overwrite": 1, "reset": 0}, None),
    (VTA, {"op": Op.LOAD, "mem": Mem.ACC8}, None),
    (VTA, {"op": Op.ALU, "alu_op": AluOp.MUL}, None),
    (PYNQ, {"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 0},
     "RESCALE without use_imm: its operand is a PAR entry"),
    (VTA, {"op": Op.FINISH}, None),
    (VTA, {"op": Op.STORE, "mem": Mem.UOP, "x_size": 0}, None),  # the NOP of VTA's runtime
    (VTA, {"op": Op.STORE, "mem": Mem.UOP, "x_size": 1}, "memory id 0 cannot be stored"),
    (VTA, {"op": Op.LOAD, "mem": Mem.INP, "pop_prev": 1}, "pop_prev is set, but queue LOAD has no prev queue"),
    (VTA, {"op": Op.LOAD, "mem": Mem.WGT, "push_prev": 1}, "push_prev is set, but queue LOAD has no prev queue"),
    (VTA, {"op": Op.STORE, "mem": Mem.OUT, "pop_next": 1}, "pop_next is set, but queue STORE has no next queue"),
    (PYNQ, {"op": Op.LOAD, "mem": Mem.PAR, "push_next": 1}, "push_next is set, but queue STORE has no next queue"),
    (VTA, {"op": Op.LOAD, "mem": Mem.ACC, "pop_prev": 1, "pop_next": 1, "push_prev": 1, "push_next": 1}, None),
]  # fmt: skip


NEEDED = [
    ("acc8", {"op": Op.LOAD, "mem": Mem.ACC8}),
    ("pad_value", {"op": Op.LOADP, "mem": Mem.INP}),
    ("requant", {"op": Op.LOAD, "mem": Mem.PAR}),
    ("requant", {"op": Op.STORE, "mem": Mem.OUTQ}),
    ("depthwise", {"op": Op.DWGEMM, "reset": 0}),
    ("rescale", {"op": Op.ALU, "alu_op": AluOp.RESCALE, "use_imm": 1}),
    ("lookup", {"op": Op.ALU, "alu_op": AluOp.LOOKUP, "use_imm": 1, "imm": 0}),
    ("lane_reduce", {"op": Op.ALU, "alu_op": AluOp.REDUCE, "use_imm": 1, "imm": 0}),
]


@pytest.mark.parametrize("cfg, fields, reason", DECODABLE)
def test_what_is_undecodable_and_why(cfg, fields, reason):
    assert Isa(cfg).undecodable(fields) == reason


@pytest.mark.parametrize("extension, fields", NEEDED)
def test_an_extension_is_undecodable_without_its_name(extension, fields):
    needy = {"rescale", "lookup", "lane_reduce", "depthwise_rows"}
    without = PLUS.replace(name="lean", extensions=sorted(PLUS.extensions - {extension, *needy}))
    assert Isa(PLUS).undecodable(fields) is None
    assert Isa(without).undecodable(fields) == f"extension {extension} is not in configuration lean"


def test_a_padded_8_bit_accumulator_load_needs_both_extensions():
    for extension in ("pad_value", "acc8"):
        without = PYNQ.replace(name="lean", extensions=sorted(PYNQ.extensions - {extension}))
        reason = Isa(without).undecodable({"op": Op.LOADP, "mem": Mem.ACC8})
        assert reason == f"extension {extension} is not in configuration lean"


LINES = [
    (
        dict(op=Op.LOAD, mem=Mem.ACC, dram_base=2112, y_size=1, x_size=64, x_stride=64),
        "LOAD.ACC dram_base=2112 y_size=1 x_size=64 x_stride=64",
    ),
    (dict(op=Op.LOAD, mem=Mem.INP, push_next=1), "LOAD.INP y_size=0 x_size=0 push_next"),
    (dict(op=Op.FINISH, pop_prev=1, pop_next=1), "FINISH pop_prev pop_next"),
    (
        dict(op=Op.GEMM, uop_end=1, iter_out=2, iter_in=3, dst_out=1, src_in=4, overwrite=1, push_prev=1),
        "GEMM uop_end=1 iter_out=2 iter_in=3 overwrite=1 dst_out=1 src_in=4 push_prev",
    ),
    (
        dict(op=Op.ALU, alu_op=AluOp.SHR, use_imm=1, imm=-3, uop_end=1, iter_out=1, iter_in=1),
        "ALU.SHR uop_end=1 iter_out=1 iter_in=1 use_imm=1 imm=-3",
    ),
    (dict(op=Op.ALU, alu_op=6), "ALU.LOOKUP"),
    (dict(op=Op.ALU, alu_op=100, use_imm=1, imm=-9), "ALU.100 use_imm=1 imm=-9"),
    (
        dict(op=Op.LOADP, mem=Mem.INP, x_size=4, y_size=1, x_pad_0=2, pad_value=-5),
        "LOADP.INP y_size=1 x_size=4 x_pad_0=2 pad_value=-5",
    ),
    (
        dict(op=Op.STORE, mem=Mem.OUTQ, x_size=4, y_size=1, par_base=3, par_step=1),
        "STORE.OUTQ y_size=1 x_size=4 par_base=3 par_step=1",
    ),
]


@pytest.mark.parametrize("values, line", LINES)
def test_disassembly(values, line):
    isa = Isa(PYNQ)
    fmt = isa.format_of(values)
    assert fmt is not None
    assert isa.disassemble(isa.decode(fmt.encode(**values))[0]) == line


@pytest.mark.parametrize("cfg", CONFIGS.values(), ids=lambda c: c.name)
@pytest.mark.parametrize("number, imm", [(8, -256), (127, 255), (64, 0)])
def test_the_second_space_of_operations_is_reduce_with_a_large_immediate(cfg, number, imm):
    isa = Isa(cfg)
    fields = {"op": Op.ALU, "iter_in": 3, "src_in": 1, "pop_prev": 1, "use_imm": 1}
    word = isa.formats["ALUX"].encode(**fields, alu_op=number, imm=imm)
    plain = isa.formats["ALU"].encode(**fields, alu_op=AluOp.REDUCE, imm=(imm << 7) + number)
    np.testing.assert_array_equal(word, plain)
    (decoded,) = isa.decode(word)
    assert decoded == dict.fromkeys(isa.formats["ALUX"].fields, 0) | fields | {"alu_op": number, "imm": imm}
    assert isa.undecodable(decoded) == f"ALU operation {number} is not declared"
    below = isa.formats["ALU"].encode(**fields, alu_op=AluOp.REDUCE, imm=imm << 7 | 7)
    assert (isa.decode(below)[0]["alu_op"], isa.decode(below)[0]["imm"]) == (AluOp.REDUCE, imm << 7 | 7)


def test_a_memory_id_has_the_name_of_what_is_done_with_it():
    named = {Op.LOAD: ("LOAD.TWGT", "LOAD.TUOP"), Op.STORE: ("STORE.OUT", "STORE.OUTQ"), Op.LOADP: ("LOADP.OUT",)}
    for op, names in named.items():
        for name, mem in zip(names, (4, 7)):
            assert Isa(TWO).mnemonic({"op": op, "mem": mem}) == name
    assert Isa(TWO).disassemble({"op": Op.TERNARY, "iter_in": 3, "pop_next": 1}) == "TERNARY iter_in=3 pop_next"


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("LOAD", {"x_size": 65536}, "LOAD.x_size = 65536: outside 0..65535 (16 bits)"),
        ("LOAD", {"x_size": [1, -1, 70000]}, "LOAD.x_size = -1: outside 0..65535 (16 bits)"),
        ("LOADP", {"y_size": 4096}, "LOADP.y_size = 4096: outside 0..4095 (12 bits)"),
        ("LOADP", {"pad_value": 128}, "LOADP.pad_value = 128: outside -128..127 (8 bits)"),
        ("GEMM", {"iter_out": 16384}, "GEMM.iter_out = 16384: outside 0..16383 (14 bits)"),
        ("ALU", {"imm": -32769}, "ALU.imm = -32769: outside -32768..32767 (16 bits)"),
        ("ALUX", {"imm": 256}, "ALUX.imm = 256: outside -256..255 (9 bits)"),
        ("UOP", {"wgt": 1024}, "UOP.wgt = 1024: outside 0..1023 (10 bits)"),
        ("FINISH", {"mem": 1}, "FINISH has no field 'mem'; it has op, pop_prev, pop_next, push_prev, push_next"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(name, values, text):
    with pytest.raises(EncodingError, match=f"^{re.escape(text)}$"):
        Isa(VTA).formats[name].encode(3, **values)


def test_parameters_lie_densely_one_channel_behind_the_other():
    fields = {
        "bias": -2,
        "multiplier": 0x40000001,
        "exponent": -3,
        "zero_point": -1,
        "low": -128,
        "high": 127,
        "mode": 1,
    }
    word = PAR.encode(**fields)
    number = (1 << 93) | (127 << 85) | (128 << 77) | (255 << 69) | (61 << 63) | (0x40000001 << 32) | 0xFFFFFFFE
    assert word.tolist() == [[number & (1 << 64) - 1, number >> 64]]
    assert PAR.width == 8 * PAR_BYTES == 96
    assert Isa(TINY).formats["PAR"] is PAR


def test_a_format_refuses_too_many_bits_and_overlaps():
    with pytest.raises(ConfigError, match=r"^W: the fields need 33 bits, the word has 32$"):
        Format("W", 32, Field("a", 30, ""), Field("b", 3, ""))
    with pytest.raises(ConfigError, match=r"^W\.b must start at bit 2, but the fields before it need 4 bits$"):
        Format("W", 32, Field("a", 4, ""), Field("b", 1, "", lo=2))


def test_tables_list_every_field():
    table = Isa(VTA).formats["ALU"].table().splitlines()
    assert table[:3] == ["| bits | field | meaning |", "|---|---|---|", "| 2:0 | `op` | opcode |"]
    assert table[-1] == "| 127:112 | `imm` | immediate |"
    assert len(table) == 2 + len(Isa(VTA).formats["ALU"].fields)
    table = Isa(VTA).formats["ALUX"].table().splitlines()
    assert table[-4] == "| 110:108 | `alu_op` | is 7 |" and table[-1] == "| 127:119 | `imm` | immediate |"
    assert table[-2] == "| 118:112 | `alu_op` | operation, 8 or more |"
