"""Damaged files of every format: a sample here, 1,000 of each among the slow tests; what judges them is tested, too."""

import os
import time
from pathlib import Path

import pytest

from tests.damage import __main__ as command
from tests.damage import judge
from tests.damage.formats import FORMATS, Format
from tilewright.hw.errors import FileError

COUNT = 20


@pytest.mark.circuit
@pytest.mark.parametrize("count, seed", [(COUNT, 7), pytest.param(1000, 100_000, marks=pytest.mark.slow)])
def test_damaged_files_are_read_or_refused_by_a_named_error(count, seed, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # processes import tests.damage, too
    status = command.main(["--count", str(count), "--seed", str(seed)])
    out = capsys.readouterr().out
    assert status == 0, out
    rows = [line for line in out.splitlines() if line.startswith("|")][2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(FORMATS)
    assert all(f" {count:,} " in row for row in rows)


def test_damaged_programs_run_or_are_refused_by_a_named_error():
    found = judge.judge("program .tw", range(60))
    assert not found.failures
    assert found.counts[judge.ACCEPTED] > 1 and len(found.counts) > 3 and found.counts.total() == 60


@pytest.mark.parametrize("name", FORMATS)
def test_whole_files_are_accepted_and_copies_follow_from_their_seed(name, tmp_path):
    form = FORMATS[name]
    samples = form.make()
    for k, sample in enumerate(samples):
        path = tmp_path / f"whole{form.suffix}"
        path.write_bytes(sample)
        assert form.read(path) is None
        seeds = range(k, 5 * len(samples), len(samples))
        copies = [judge.copy(form, samples, seed) for seed in seeds]
        assert copies == [judge.copy(form, samples, seed) for seed in seeds] and any(c != sample for c in copies)


def _outcomes(monkeypatch, read, count=4, **limits):
    monkeypatch.setitem(FORMATS, "test", Format("", lambda: [b"0123456789"], read, lambda data, seed: bytes([seed])))
    return judge.judge("test", range(count), **limits)


def test_what_may_not_be_is_a_failure(monkeypatch):
    """One class after the other, and the next file is read all the same."""

    def read(path):
        seed = path.read_bytes()[0]
        if seed == 0:
            raise FileError("a named error")
        if seed == 1:
            raise KeyError("a defect")
        if seed == 2:
            os._exit(3)
        if seed == 3:
            time.sleep(60)
        if seed == 4:
            try:
                bytearray(2 << 30)
            except MemoryError:
                raise FileError("too much") from None
        if seed == 5:
            raise FileError("\0" + "x" * 5000)
        return None if seed == 6 else "passed over"

    found = _outcomes(monkeypatch, read, 8, seconds=2.0)
    assert found.counts == {"FileError": 1, judge.ACCEPTED: 1, "passed over": 1}
    texts = dict(found.failures)
    assert sorted(texts) == [1, 2, 3, 4, 5] and "KeyError: 'a defect'" in texts[1]
    assert texts[2].startswith("the process ended with status") and texts[3] == "no answer in 2 s"
    assert texts[4].startswith("memory over the limit: too much") and "no short line" in texts[5]
    assert len(command.alike([*found.failures, (9, texts[1])])) == 5


def test_failures_are_told(monkeypatch, capsys):
    """By the command's exit status, and by where they ended."""
    monkeypatch.setattr(command, "ProcessPoolExecutor", _Here)
    monkeypatch.setattr(command, "judge", lambda name, seeds: judge.Found(failures=[(3, "a defect")]))
    assert command.main(["--count", "1", "--only", "report .json"]) == 1
    out = capsys.readouterr().out
    assert "| report .json | 1 | 0 | 0 | 1 | 0 | 0.00 s | 0 MB |" in out
    assert "report .json, 1 files, seed 3: a defect" in out


class _Here:
    """An executor of this process."""

    def __init__(self, *_):
        self.map = map

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
