"""cli/bitstream.py: without tools a whole build directory and one line; with them a bitstream."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("amaranth")
from tilewright.boards import synthesis
from tilewright.boards.synthesis import Resources, Synthesis
from tilewright.boards.zynq.board import load_board
from tilewright.boards.zynq.build import Build, write_build
from tilewright.hw.config import PRESETS

PYNQ_Z1 = load_board()


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is all of PATH but for the shell's own tools."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One real build directory: elaborating takes seconds."""
    return write_build(PRESETS["tiny"], PYNQ_Z1, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def asked(whole, monkeypatch):
    """Hands out copies of `whole`; the list of what was asked for."""
    calls = []

    def write(cfg, board, folder):
        calls.append((cfg.name, board))
        shutil.copytree(whole.folder, folder)
        return Build(whole.name, Path(folder), whole.scripts)

    monkeypatch.setattr("tilewright.cli.bitstream.write_build", write)
    return calls


def test_without_tools_the_directory_is_written_and_one_line_says_what_to_install(tilewright, tmp_path, path, asked):
    done = tilewright("bitstream", "--config", "tiny", "-o", tmp_path / "b", "--no-count")
    assert done.status == 5
    assert done.err.startswith("tilewright: error: no tool for an xc7z020clg400-1 is on PATH: install Vivado")
    assert done.err.count("\n") == 1 and f"in {tmp_path / 'b'}, which is complete" in done.err
    assert f"{tmp_path / 'b'}: tilewright_pynq_z1_tiny_" in done.out
    assert len(list((tmp_path / "b").iterdir())) == 11
    assert asked == [("tiny", PYNQ_Z1)]


def test_with_vivado(tilewright, printed, tmp_path, path, asked):
    """A stand-in that writes what the script expects of it."""
    vivado = path / "vivado"
    vivado.write_text('#!/bin/sh\nfor last; do :; done\n: > "${last%.tcl}.bit"\n')
    vivado.chmod(0o755)
    numbers = ("--clock", "80", "--base", "0x40000000", "--memory", "ACP")
    facts = printed("bitstream -o", tmp_path / "b", "--no-count", *numbers)
    assert facts["bitstream"] == str(tmp_path / "b" / f"{facts['name']}.bit")
    assert asked == [("pynq_z1", PYNQ_Z1.replace(clock_mhz=80.0, base=0x4000_0000, memory="ACP"))]
    vivado.write_text("#!/bin/sh\necho ERROR: no licence\nexit 7\n")
    done = tilewright("bitstream", "--config", "tiny", "-o", tmp_path / "c", "--no-count")
    assert done.status == 8 and "failed with status 7: ERROR: no licence; see" in done.err


def test_another_board(tilewright, tmp_path, path, asked):
    numbers = ("--board", "kv260", "--config", "tiny", "-o", tmp_path / "b")
    done = tilewright("bitstream", *numbers)
    assert asked == [("tiny", load_board("kv260"))]
    assert done.status == 5 and "no tool for an xck26-sfvc784-2LV-c is on PATH: install Vivado; the open" in done.err
    assert "resources are counted for an xc7z020 alone, not for an xck26" in done.err


def test_write_only(tilewright, tmp_path, path, asked):
    done = tilewright("bitstream", "--config", "tiny", "-o", tmp_path / "b", "--write-only", "--json")
    facts = json.loads(done.out)
    assert done.status == 0 and facts["bitstream"] is None and "resources" not in facts


@pytest.mark.parametrize(
    "arguments, status, text",
    [
        (["--base", "there"], 3, "--base there: must be a number"),
        (["--board", "zcu104"], 3, "unknown board 'zcu104'; known are arty_z7_20, kv260, pynq_z1, pynq_z2, zybo_z7_20"),
        (["--board", "kv260", "--memory", "ACP"], 3, "Board.memory = 'ACP': must be HP"),
        (["--memory", "GP"], 3, "Board.memory = 'GP': must be HP or ACP"),
        (["--clock", "1000"], 3, "Board.clock_mhz = 1000.0"),
        (["--memory", "ACP", "--config", "tiny"], 5, "partial strobes, which the ACP does not support"),
    ],
)
def test_mistakes(tilewright, tmp_path, arguments, status, text):
    done = tilewright("bitstream", "-o", tmp_path / "b", *arguments)
    assert done.status == status and text in done.err and not (tmp_path / "b").exists()


def test_the_count_of_the_whole_top(tilewright, tmp_path, path, asked, monkeypatch):
    seen = []

    def synthesise_file(verilog, top, config, report):
        seen.append((verilog.name, top, config))
        return Synthesis("tiny", Resources(7000, 5000, 3.5, 31), {"bridge": Resources(150, 100, 0, 0)})

    monkeypatch.setattr(synthesis, "synthesise_file", synthesise_file)
    monkeypatch.setattr(synthesis, "need_tools", lambda name: None)
    done = tilewright("bitstream", "--config", "tiny", "-o", tmp_path / "b")
    assert done.status == 5 and done.out.splitlines()[1].startswith("no build tool here; counting the resources")
    ((verilog, top, config),) = seen
    assert verilog == f"{top}.v" and config == "tiny"
    assert "bridge" in done.out and "13.2 %" in done.out and "with its PS7, after synthesis with Yosys" in done.out
