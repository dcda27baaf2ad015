"""cli/doctor.py."""

import importlib.metadata
import json

from tilewright.cli import doctor
from tilewright.hw.config import PRESETS


def test_it_names_packages_tools_presets_and_devices(tilewright):
    done = tilewright("doctor")
    assert done.status == 0
    for word in ("numpy", "make", *PRESETS, "devices: board, model"):
        assert word in done.out
    assert all(line == line.rstrip() for line in done.out.splitlines())


def test_json(tilewright):
    found = json.loads(tilewright("doctor", "--json").out)
    numpy = next(item for item in found["items"] if item["name"] == "numpy")
    assert numpy["state"] == "ok"
    assert numpy["version"] == importlib.metadata.version("numpy")
    assert [p["fingerprint"] for p in found["presets"]] == [f"{c.fingerprint:016x}" for c in PRESETS.values()]


def test_missing_and_wrong_versions_are_told_apart(tilewright, monkeypatch):
    needs = ["numpy<1", "torch>=2; extra == 'train'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [n.replace("'", '"') for n in needs])

    def version(name):
        if name == "numpy":
            return "2.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    states = {item.name: (item.state, item.extra) for item in doctor.packages()}
    assert states == {"numpy": ("wrong version", ""), "torch": ("missing", "train")}


def test_every_declared_dependency_has_a_purpose():
    from packaging.requirements import Requirement

    declared = {Requirement(text).name for text in importlib.metadata.requires("tilewright") or []}
    assert declared - {"setuptools", "tomli"} <= set(doctor.PURPOSE)


def test_a_machine_that_is_no_board(tilewright, no_pynq):
    done = tilewright("doctor", "--board")
    assert done.status == 11
    assert "ok      machine: " in done.out and "FAILED  " in done.out
    assert done.out.splitlines()[-1] == "docs/board.md explains each message"
    found = json.loads(tilewright("doctor", "--board", "--json").out)
    assert not found["ready"] and not found["checks"][-1]["fine"]
    assert tilewright("doctor", "--board", "kv260").status == 11
    assert "unknown board 'kv261'" in tilewright("doctor", "--board", "kv261").err


def test_options_of_a_board_need_board(refused):
    for options in (["--host", "there"], ["--clock", "50"]):
        refused(5, f"{options[0]}: only for a board; add --board", "doctor", *options)


def test_a_server_that_does_not_answer(tilewright):
    done = tilewright("doctor", "--board", "--host", "localhost:1")
    assert done.status == 11 and "FAILED  server: localhost:1: no answer; check that `tilewright serve`" in done.out
