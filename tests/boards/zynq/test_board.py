"""boards/zynq/board.py and the rows beside it."""

import json

import pytest

from tilewright.boards.zynq.board import BOARDS, ROWS, boards_table, check_board, load_board, table
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, UnsupportedError

TINY, PYNQ_Z1 = PRESETS["tiny"], load_board()


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
        PYNQ_Z1.replace(**fields)
    assert str(caught.value).startswith(text)


def test_rows_are_short_and_of_the_folder():
    assert BOARDS == ["arty_z7_20", "kv260", "pynq_z1", "pynq_z2", "zybo_z7_20"]
    for name in BOARDS:
        board, text = load_board(name), (ROWS / f"{name}.json").read_text()
        assert board.name == name and len(text.splitlines()) <= 40
        check_board(TINY.replace(axi_bits=board.ps.data_bits), board)
    kv260 = load_board("kv260")
    assert (kv260.ps.axi, kv260.ps.data_bits, kv260.clock_mhz, kv260.ddr_bytes) == ("AXI4", 128, 250, 4 << 30)
    assert kv260.available["dsp"] == 1248 and load_board().device == "xc7z020"


def test_a_file_is_a_board(tmp_path):
    row = json.loads((ROWS / "zybo_z7_20.json").read_text()) | {"title": "Zybo Z7-10", "part": "xc7z010clg400-1"}
    (tmp_path / "mine.json").write_text(json.dumps(row))
    board = load_board(str(tmp_path / "mine.json"))
    assert (board.name, board.title, board.device, board.available["dsp"]) == ("mine", "Zybo Z7-10", "xc7z010", 80)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"colour": 1}, "a board has no field 'colour'; it has title, part, system, crystal_mhz, clock_mhz, ddr_bytes"),
        ({"part": None}, "a board needs part"),
        ({"part": "xc7a35tcpg236-1"}, "Board.part = 'xc7a35tcpg236-1': must begin with xc7z010, xc7z020, xck26"),
        ({"system": "zynq"}, "Board.system = 'zynq': must be zynq7 or zynqmp"),
        ({"clock_mhz": "fast"}, "Board.clock_mhz = 'fast': must be a number"),
        ({"title": 7}, "Board.title = 7: must be a text"),
        ({"ddr_bytes": 0.5}, "Board.ddr_bytes = 0.5: must be a number of bytes, 1048576 or more"),
        ({"pins": {"lamp": "A1"}}, "Board.pins = {'lamp': 'A1'}: must be pins of alive, done, error"),
    ],
)
def test_rows_with_mistakes(tmp_path, change, text):
    row = json.loads((ROWS / "pynq_z1.json").read_text()) | change
    (tmp_path / "x.json").write_text(json.dumps({key: value for key, value in row.items() if value is not None}))
    with pytest.raises(ConfigError) as caught:
        load_board(str(tmp_path / "x.json"))
    assert text in str(caught.value)


def test_boards_that_are_unknown():
    with pytest.raises(ConfigError, match="unknown board 'zcu104'; known are arty_z7_20, kv260, .* or give a .json"):
        load_board("zcu104")


def test_names_differ_by_configuration_and_ports():
    names = {PYNQ_Z1.replace(memory=m).design_name(cfg) for m in ("HP", "ACP") for cfg in PRESETS.values()}
    assert len(names) == 2 * len(PRESETS)
    assert PYNQ_Z1.design_name(PRESETS["tiny"].replace(name="a b/c")).startswith("tilewright_pynq_z1_a_b_c_")
    wide = [load_board("kv260").design_name(TINY.replace(axi_bits=bits)) for bits in (64, 128)]
    assert [name.rpartition("_")[2] for name in wide] == ["hp64", "hp128"]  # one fingerprint, two circuits


def test_the_table_names_the_values_in_use():
    text = table(PYNQ_Z1.replace(clock_mhz=80, base=0x4000_0000))
    assert boards_table().count("\n") == 1 + len(BOARDS) and "AXI4 | 4 x 64 or 128 bit | 250 MHz" in boards_table()
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
        check_board(TINY.replace(**changes), PYNQ_Z1.replace(memory=memory))
    assert text in str(caught.value)


def test_configurations_that_can():
    for cfg in PRESETS.values():
        check_board(cfg, PYNQ_Z1)
    check_board(PRESETS["pynq_z1"], PYNQ_Z1.replace(memory="ACP"))
    check_board(TINY.replace(load_ports=2), PYNQ_Z1)
    check_board(TINY.replace(load_ports=4), PYNQ_Z1)
