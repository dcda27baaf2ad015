"""tools/frozen.py: compiled networks are those of tests/data/frozen.json, and what differs is seen."""

import hashlib
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

from tilewright.compiler.network import compile_model
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tools import frozen

ROOT = Path(__file__).parents[2]
QUICK = [name for name in frozen.names() if frozen.QUICK.search(name)]
ROW = frozen.Row("ab" * 32, 1000, {"chain": 1, "pack": 2})


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def one_program(tmp_path, monkeypatch):
    """A file with the program digits/tiny as `ROW`; what is compiled is `now`, which a test changes."""
    file, now = tmp_path / "frozen.json", {"digits/tiny": ROW}
    monkeypatch.setattr(frozen, "FILE", file)
    monkeypatch.setattr(frozen, "CASES", {"digits": "tiny"})
    monkeypatch.setattr(frozen, "measured", lambda wanted, jobs: ((name, now[name]) for name in wanted))
    frozen.write(file, now)
    return now


@pytest.mark.parametrize("name", [name for name in QUICK if not name.startswith(("resnet18", "microllama"))])
def test_programs_are_those_of_the_file(name):
    if frozen.missing(name):
        pytest.skip(f"{frozen.NETWORKS[name.partition('/')[0]]} is missing")
    packed, rows = frozen.read(frozen.FILE)
    found = frozen.measure(name)
    if packed != zlib.ZLIB_RUNTIME_VERSION:  # packs the same programs to other bytes
        found = replace(found, digest=rows[name].digest)
    assert found == rows[name]


def test_a_row_is_the_file_that_compile_writes_and_the_cycles_of_a_run(tmp_path):
    row = frozen.measure("digits/pynq_z1")
    digits = compile_model(ROOT / "examples" / "digits" / "digits.onnx", "pynq_z1")
    digits.save(tmp_path / "digits.tw")
    assert hashlib.sha256((tmp_path / "digits.tw").read_bytes()).hexdigest() == row.digest
    with Loaded(digits, open_device("timing", PRESETS["pynq_z1"])) as loaded:
        loaded.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
        assert sum(step.stats.cycles or 0 for step in loaded.reports) == row.cycles


def test_every_case_is_in_the_file_and_has_a_source():
    _, rows = frozen.read(frozen.FILE)
    assert list(rows) == frozen.names() and len(rows) >= 40
    assert {*frozen.CASES} == {*frozen.NETWORKS}
    assert {config for configs in frozen.CASES.values() for config in configs.split()} == {*frozen.CONFIGS}
    assert all(re.fullmatch("[0-9a-f]{64}", row.digest) for row in rows.values())
    assert len(QUICK) >= 12


@pytest.mark.parametrize(
    "now, text, status",
    [
        (ROW, None, 0),
        (replace(ROW, digest="cd" * 32), "digest abababababab -> cdcdcdcdcdcd", 1),
        (replace(ROW, cycles=1010), "cycles 1,000 -> 1,010 (+10, +1.00 %)", 1),
        (replace(ROW, cycles=990), "cycles 1,000 -> 990 (-10, -1.00 %)", 1),
        (replace(ROW, host={"chain": 1, "pack": 3}), "pack goes to the host, 2 -> 3 times", 1),
        (replace(ROW, host={"pack": 2}), "chain leaves the host, 1 -> 0 times", 1),
        (UnsupportedError("no"), "is not compiled: no", 1),
    ],
)
def test_what_differs_is_printed(now, text, status, one_program, capsys):
    one_program["digits/tiny"] = now
    assert frozen.main([]) == status
    out = capsys.readouterr().out
    assert text is None or f"digits/tiny {text}" in re.sub(" +", " ", out)
    assert f"1 programs, {status} differ" in out


@pytest.mark.parametrize(
    "now, status",
    [
        (replace(ROW, digest="cd" * 32), 0),
        (replace(ROW, digest="cd" * 32, cycles=999), 0),
        (replace(ROW, digest="cd" * 32, host={}), 0),
        (replace(ROW, digest="cd" * 32, cycles=1001), 1),
        (replace(ROW, digest="cd" * 32, host={"chain": 2, "pack": 2}), 1),
    ],
)
def test_changes_that_are_accepted_may_not_be_for_the_worse(now, status, one_program):
    one_program["digits/tiny"] = now
    assert frozen.main(["--accept", "digits"]) == status
    assert frozen.main(["--accept", "kws"]) == 1
    assert frozen.main(["--update"]) == status
    assert frozen.main([]) == 0  # the file has it now


def test_programs_come_and_go(one_program, monkeypatch, capsys):
    frozen.FILE.write_text(json.dumps({"zlib": "1.1", "programs": {"old/tiny": vars(ROW)}}))
    assert frozen.main([]) == 1
    out = re.sub(" +", " ", capsys.readouterr().out)
    assert "digits/tiny is not in the file: 1,000 cycles" in out and "old/tiny is in the file, and no case" in out
    assert "packed by zlib 1.1" in out
    assert frozen.main(["--update"]) == 0 and frozen.main([]) == 0
    assert list(frozen.read(frozen.FILE)[1]) == ["digits/tiny"]


def test_networks_that_are_missing_are_skipped_and_stay_in_the_file(one_program, monkeypatch, capsys):
    monkeypatch.setitem(frozen.NETWORKS, "digits", "../nowhere/digits.onnx")
    assert frozen.main(["--update"]) == 0
    assert "skipped: 1 programs" in capsys.readouterr().out
    assert frozen.read(frozen.FILE)[1] == {"digits/tiny": ROW}


def test_errors_of_a_compilation_come_back_from_processes(monkeypatch):
    def refuse(name):
        raise UnsupportedError(f"no {name}")

    monkeypatch.setattr(frozen, "measure", refuse)
    ((name, found),) = frozen.measured(["digits/tiny"], 2)
    assert name == "digits/tiny" and isinstance(found, UnsupportedError) and str(found) == "no digits/tiny"


def test_a_pattern_that_means_nothing_is_refused(capsys):
    with pytest.raises(SystemExit):
        frozen.main(["-k", "nothing"])
    assert "no program has such a name" in capsys.readouterr().err
    assert frozen.main(["-k", "digits/t", "--list"]) == 0
    assert capsys.readouterr().out.split() == ["digits/tiny", "digits/two_ports"]
