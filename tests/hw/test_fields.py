"""hw/fields.py: the declared fields are those of the first version, with the defaults and limits that they had."""

import dataclasses
from typing import Any

from tilewright.hw.config import Config
from tilewright.hw.fields import Fields, Part, parameters


def as_any(value: object) -> Any:
    return value


CIRCUIT = "name acc_banks axi_bits load_ports store_ports queue_depth token_depth ppu_lanes dsp_packing".split()


def test_fields_are_data_alone():
    assert dataclasses.fields(Fields) == dataclasses.fields(Config)
    assert Fields(batch=3).batch == 3  # Config checks
    assert Fields().inp_bytes is None


def test_what_describes_the_circuit_alone():
    assert [name for name, p in parameters(Fields).items() if p.part == Part.CIRCUIT] == CIRCUIT
    later = [name for name, p in parameters(Fields).items() if p.part == Part.LATER]
    assert later == ["tables", "units", "ternary_blocks", "twgt_bytes"]


def test_defaults_are_legal():
    for f in dataclasses.fields(Fields):
        parameter, default = parameters(Fields)[f.name], as_any(f.default)
        if parameter.high and default is not None:
            assert parameter.low <= default <= parameter.high
