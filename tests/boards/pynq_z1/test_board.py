"""boards/pynq_z1/board.py."""

import pytest

from tilewright.boards.pynq_z1.board import Board, check_board, table
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, UnsupportedError

TINY = PRESETS["tiny"]


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"clock_mhz": 0.5}, "Board.clock_mhz = 0.5: must be from 1 to 250"),
        ({"clock_mhz": 300}, "Board.clock_mhz = 300: must be from 1 to 250"),
        ({"base": 0x43C0_0004}, "Board.base = 0x43c00004: must be a multiple of 4096 from 0x40000000 to 0x7ffff000"),
        ({"base": 0x8000_0000}, "Board.base = 0x80000000: must be"),
        ({"memory": "GP"}, "Board.memory = 'GP': must be HP or ACP"),
    ],
)
def test_impossible_values(fields, text):
    with pytest.raises(ConfigError) as caught:
        Board(**fields)
    assert str(caught.value).startswith(text)


def test_names_differ_by_configuration_and_ports():
    names = {Board(memory=m).design_name(cfg) for m in ("HP", "ACP") for cfg in PRESETS.values()}
    assert len(names) == 2 * len(PRESETS)
    assert Board().design_name(PRESETS["tiny"].replace(name="a b/c")).startswith("tilewright_a_b_c_")


def test_the_table_names_the_values_in_use():
    text = table(Board(clock_mhz=80, base=0x4000_0000))
    assert "80 MHz" in text and "0x40000000 to 0x40000fff" in text and "SAXIHP0" in text


@pytest.mark.parametrize(
    "changes, memory, text",
    [
        ({"axi_bits": 32}, "HP", "Config.axi_bits = 32: must be 64, as the board's memory ports"),
        ({"load_ports": 4, "axi_bits": 256}, "HP", "Config.load_ports = 4: the load unit takes 512 bits"),
        ({"load_ports": 2}, "ACP", "Config.load_ports = 2: ACP has 1; use that number or memory HP"),
        ({}, "ACP", "an output entry of 32 bits is stored with partial strobes, which the ACP does not support"),
    ],
)
def test_configurations_that_cannot_sit_on_the_board(changes, memory, text):
    with pytest.raises(UnsupportedError) as caught:
        check_board(TINY.replace(**changes), Board(memory=memory))
    assert text in str(caught.value)


def test_configurations_that_can():
    for cfg in PRESETS.values():
        check_board(cfg, Board())
    check_board(PRESETS["pynq_z1"], Board(memory="ACP"))
    check_board(TINY.replace(load_ports=2), Board())
    check_board(TINY.replace(load_ports=4), Board())
