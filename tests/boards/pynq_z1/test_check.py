"""boards/selftest.py and check_machine: every step, and each that fails ends the list with what to do."""

import os
import shutil

import pytest

from tilewright.boards.pynq_z1.driver import check_machine
from tilewright.boards.selftest import run_self_test
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded

TINY = PRESETS["tiny"]
STEPS = ["machine", "user", "pynq", "memory", "bitstream", "registers", "self-test"]


@pytest.fixture
def checked(fake_pynq, tmp_path, monkeypatch):
    """The checks of a fake board, as `checked(change)`: `change` spoils the board or the options."""
    if not shutil.which("g++"):
        pytest.skip("g++ is missing: no circuit can be built")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "x.bit").write_bytes(b"bits")
    (tmp_path / "meminfo").write_text("CmaFree: 65536 kB\n")

    def check(change=lambda board, options: None):
        board = fake_pynq(TINY)
        options = {"pynq": board, "bitstream": tmp_path / "x.bit", "meminfo": tmp_path / "meminfo", "watchdog": 2000}
        change(board, options)
        return list(check_machine(TINY, **options))

    return check


def test_a_board_that_is_ready(checked):
    found = checked()
    assert [check.name for check in found] == STEPS and all(check.fine for check in found)
    assert "numpy" in found[0].found and found[3].found == "65,536 kB of contiguous memory are free"
    assert found[5].found == f"tiny ({TINY.fingerprint:016x}) answers at 0x43c00000"
    assert found[6].found.startswith("4 values are right, ") and found[6].found.endswith(" cycles")


def no_bitstream(board, options):
    options["bitstream"] = "none.bit"


def little_memory(board, options):
    options["meminfo"].write_text("CmaFree: 4 kB\n")


def other_registers(board, options):
    board.wrong = {"VERSION": 0xFFFFFFFF}


def stale_caches(board, options):
    board.missing = ("invalidate",)


@pytest.mark.parametrize(
    "change, step, text",
    [
        (no_bitstream, "bitstream", "none.bit: no such bitstream"),
        (little_memory, "self-test", "of contiguous memory (CmaFree), but only 4,096 are free"),
        (other_registers, "registers", "VERSION at 0x43c00000 reads 0xffffffff"),
        (stale_caches, "self-test", "4 of 4 values are wrong: the bitstream needs other memory ports or another clock"),
    ],
)
def test_the_first_failure_ends_the_list(checked, change, step, text):
    *before, last = checked(change)
    assert all(check.fine for check in before) and not last.fine
    assert last.name == step and text in last.found


def test_only_root_may(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    *_, last = check_machine(TINY)
    assert (last.name, last.fine) == ("user", False) and "run with sudo" in last.found


def test_a_machine_that_is_no_board(monkeypatch, no_pynq):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    *_, last = check_machine(TINY)
    assert last.name == "pynq" and "pynq is not installed" in last.found


def test_the_self_test_sees_wrong_values(monkeypatch):
    device = open_device("model", TINY)
    assert run_self_test(TINY, lambda launch: Loaded(launch, device)) == "4 values are right"
    read = device.read
    monkeypatch.setattr(device, "read", lambda address, nbytes: read(address, nbytes) ^ 1)
    with pytest.raises(BoardError, match="4 of 4 values are wrong"):
        run_self_test(TINY, lambda launch: Loaded(launch, device))
