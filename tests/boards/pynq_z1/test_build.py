"""boards/pynq_z1/build.py: the build directory is whole; tools are found and run, and their failures reported."""

import os

import pytest

pytest.importorskip("amaranth")
from tilewright.boards.pynq_z1 import build
from tilewright.boards.pynq_z1.board import Board
from tilewright.boards.pynq_z1.build import Build, run_build, way_to_build, write_build
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ExecutionError, FileError, UnsupportedError

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_build(TINY, Board(clock_mhz=50, base=0x4000_0000), tmp_path_factory.mktemp("build") / "a" / "b")


@pytest.fixture
def path(tmp_path, monkeypatch):
    """An empty PATH, and a function that puts a program on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("PRJXRAY_DB", "CHIPDB"):
        monkeypatch.delenv(name, raising=False)

    def put(*names, script="#!/bin/sh\n"):
        for name in names:
            (tmp_path / name).write_text(script)
            (tmp_path / name).chmod(0o755)

    return put


def test_the_directory_is_whole(written):
    name = written.name
    assert name == f"tilewright_tiny_{TINY.fingerprint:016x}_hp"
    assert {p.name for p in written.folder.iterdir()} == {
        *(f"{name}{end}" for end in (".v", ".xdc", ".tcl", "_open.xdc", "_core.v", "_bd.v", "_bd.tcl")),
        *(f"build_{name}{end}.sh" for end in ("", "_open", "_bd")),
    }
    for script in written.scripts.values():
        assert os.access(written.folder / script, os.X_OK)


def test_parameters_reach_the_files(written):
    constraints = (written.folder / f"{written.name}.xdc").read_text()
    assert 'create_clock -name fclk0 -period 20.0 [get_nets "fclk0"]' in constraints
    assert "set_property LOC R14" in constraints and "LVCMOS33" in constraints
    assert "create_project -force -name" in (text := (written.folder / f"{written.name}.tcl").read_text())
    assert "-part xc7z020clg400-1" in text and f"write_bitstream -force -bin_file {written.name}.bit" in text
    for check in ("FCLK0 is not constrained", "timing is missed by"):  # before the bitstream is written
        assert 0 < text.index(check) < text.index("write_bitstream")
    top = written.verilog.read_text()
    assert "PS7 ps7 (" in top and '(* DONT_TOUCH = "true" *)' in top and "BUFG bufg (" in top
    assert f"module {written.name}(" in top
    assert "40000000" in (written.folder / f"{written.name}_bd.tcl").read_text()


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be created"):
        write_build(TINY, Board(), tmp_path / "file" / "x")


def test_a_configuration_that_does_not_fit_writes_nothing(tmp_path):
    with pytest.raises(UnsupportedError, match="Config.axi_bits = 32"):
        write_build(TINY.replace(axi_bits=32), Board(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_vivado_comes_first(path):
    path("vivado", "yosys")
    assert way_to_build() == "vivado"


@pytest.mark.parametrize("nextpnr", ["nextpnr-xilinx", "nextpnr-himbaechel"])
def test_the_open_tools_need_all_their_parts(path, monkeypatch, nextpnr):
    with pytest.raises(UnsupportedError) as caught:
        way_to_build()
    assert "install Vivado" in str(caught.value)
    assert "yosys, fasm2frames, xc7frames2bit, nextpnr-xilinx or nextpnr-himbaechel, the variable" in str(caught.value)
    path("yosys", "fasm2frames", "xc7frames2bit", nextpnr)
    monkeypatch.setenv("PRJXRAY_DB", "db")
    with pytest.raises(UnsupportedError, match="of which the variable CHIPDB is missing"):
        way_to_build()
    monkeypatch.setenv("CHIPDB", "db.bin")
    assert way_to_build() == "open"


def made(tmp_path, script):
    (tmp_path / "go.sh").write_text(script)
    return Build("x", tmp_path, {"vivado": "go.sh"})


def test_a_script_that_makes_a_bitstream(tmp_path):
    assert run_build(made(tmp_path, "echo fine; touch x.bit"), "vivado") == tmp_path / "x.bit"
    assert (tmp_path / "build.log").read_text() == "fine\n"


@pytest.mark.parametrize(
    "script, text",
    [
        (
            "echo a; echo 'ERROR: [Place 30] no room'; echo b; exit 3",
            "go.sh failed with status 3: ERROR: .Place 30. no",
        ),
        ("echo a; echo b; exit 1", "go.sh failed with status 1: b; see .*build.log"),
        ("exit 1", "failed with status 1: no message"),
        ("echo done", "failed with status 0: done"),
    ],
)
def test_a_script_that_does_not(tmp_path, script, text):
    with pytest.raises(ExecutionError, match=text):
        run_build(made(tmp_path, script), "vivado")


def test_the_open_script_calls_its_tools_in_order(written, path, tmp_path, monkeypatch):
    """With stand-ins for the tools, which say what they were called with; xc7frames2bit writes the bitstream."""
    path("yosys", "nextpnr-himbaechel", "fasm2frames", script='#!/bin/sh\necho "$(/usr/bin/basename $0) $*"\n')
    path("xc7frames2bit", script=f'#!/bin/sh\necho "xc7frames2bit $*"\n: > {written.name}.bit\n')
    monkeypatch.setenv("PRJXRAY_DB", "/db")
    monkeypatch.setenv("CHIPDB", "/chip.bin")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert run_build(written, "open").is_file()
    said = (written.folder / "build.log").read_text()
    order = [
        line.split()[0] for line in said.splitlines() if line.split()[0] in ("yosys", "fasm2frames") or "xc7f" in line
    ]
    assert order == ["yosys", "fasm2frames", "xc7frames2bit"]
    assert "--device xc7z020clg400-1 --chipdb /chip.bin" in said and "--freq 50" in said
    assert "--db-root /db/zynq7" in said and f"--output_file {written.name}.bit" in said
    written.bitstream.unlink()
    (written.folder / "build.log").unlink()
