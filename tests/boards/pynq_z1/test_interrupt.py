"""Interrupt of boards/pynq_z1/driver.py: a socket stands in for the kernel's device."""

import os
import socket

import pytest

from tilewright.boards.pynq_z1 import driver
from tilewright.boards.pynq_z1.driver import Interrupt


@pytest.fixture
def line():
    """(interrupt, the kernel's end)."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    found = Interrupt(ours.detach())
    yield found, theirs
    found.close()
    theirs.close()


def test_it_is_enabled_and_waited_for(line):
    found, kernel = line
    kernel.send((7).to_bytes(4, "little"))
    assert found.wait(5)
    assert kernel.recv(16) == b"\x01\0\0\0"
    assert not found.wait(0)  # one count, one wake
    assert kernel.recv(16) == b"\x01\0\0\0"


def test_it_is_found_by_its_name(tmp_path, monkeypatch):
    for name, content in (("uio0", "other"), ("uio1", "fabric")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(f"{content}\n")
    opened = []

    def stand_in(path, flags):
        opened.append(path)
        return os.dup(0)

    with monkeypatch.context() as patch:
        patch.setattr(driver.os, "open", stand_in)
        found = Interrupt.find(tmp_path)
    assert found and opened == ["/dev/uio1"]
    found.close()


def test_where_there_is_none(tmp_path, monkeypatch):
    assert Interrupt.find(tmp_path / "none") is None
    (tmp_path / "uio0").mkdir()
    (tmp_path / "uio0" / "name").write_text("fabric\n")

    def refuse(path, flags):
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        patch.setattr(driver.os, "open", refuse)
        assert Interrupt.find(tmp_path) is None
