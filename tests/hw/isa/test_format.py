"""hw/isa/encoding.py: what fits a word and what does not, words without gaps, the table for the docs."""

import re

import pytest

from tilewright.hw.config import PAR_BYTES, PRESETS
from tilewright.hw.errors import ConfigError, EncodingError
from tilewright.hw.isa import PAR, Field, Format, Isa

VTA, TINY = PRESETS["vta"], PRESETS["tiny"]


@pytest.mark.parametrize(
    "name, values, text",
    [
        ("LOAD", {"x_size": 65536}, "LOAD.x_size = 65536: outside 0..65535 (16 bits)"),
        ("LOAD", {"x_size": [1, -1, 70000]}, "LOAD.x_size = -1: outside 0..65535 (16 bits)"),
        ("LOADP", {"y_size": 4096}, "LOADP.y_size = 4096: outside 0..4095 (12 bits)"),
        ("LOADP", {"pad_value": 128}, "LOADP.pad_value = 128: outside -128..127 (8 bits)"),
        ("GEMM", {"iter_out": 16384}, "GEMM.iter_out = 16384: outside 0..16383 (14 bits)"),
        ("ALU", {"imm": -32769}, "ALU.imm = -32769: outside -32768..32767 (16 bits)"),
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
