"""runtime/c/folder.py: whole or not at all, and nothing of a user's is lost."""

import json
import os
from pathlib import Path

import pytest

from tilewright.hw.errors import FileError
from tilewright.runtime.c.folder import RECORD, check_folder, write_folder

FILES = {"a.c": b"one", "b.h": b"two"}


def contents(folder: Path):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != RECORD}


def test_a_new_folder(tmp_path):
    write_folder(tmp_path / "out", FILES)
    assert contents(tmp_path / "out") == FILES
    assert set(json.loads((tmp_path / "out" / RECORD).read_bytes())) == set(FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~umask


def test_an_empty_folder_is_used(tmp_path):
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", FILES)
    assert contents(tmp_path / "out") == FILES


def test_what_was_generated_is_replaced_and_the_rest_stays(tmp_path):
    out = tmp_path / "out"
    write_folder(out, FILES)
    (out / "build").mkdir()
    (out / "build" / "x.o").write_bytes(b"object")
    (out / "mine.c").write_bytes(b"mine")
    write_folder(out, {"a.c": b"new"})
    assert (out / "build" / "x.o").read_bytes() == b"object"
    assert {p.name for p in out.iterdir()} == {"a.c", "mine.c", "build", RECORD}
    assert (out / "a.c").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_file_that_was_deleted_comes_back(tmp_path):
    write_folder(tmp_path / "out", FILES)
    (tmp_path / "out" / "a.c").unlink()
    write_folder(tmp_path / "out", FILES)
    assert contents(tmp_path / "out") == FILES


def test_a_file_that_was_changed_is_not_lost(tmp_path):
    write_folder(tmp_path / "out", FILES)
    (tmp_path / "out" / "a.c").write_bytes(b"by hand")
    with pytest.raises(FileError, match=r"a\.c was changed since it was generated; give a new folder"):
        write_folder(tmp_path / "out", FILES)
    assert (tmp_path / "out" / "a.c").read_bytes() == b"by hand"


def test_a_file_that_was_not_generated_is_not_lost(tmp_path):
    write_folder(tmp_path / "out", FILES)
    (tmp_path / "out" / "c.c").write_bytes(b"mine")
    with pytest.raises(FileError, match=r"c\.c was not generated; give a new folder, or move"):
        write_folder(tmp_path / "out", FILES | {"c.c": b"three"})
    assert contents(tmp_path / "out") == FILES | {"c.c": b"mine"}


def test_the_working_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="is the working folder, which is replaced; start from another"):
        write_folder(".", FILES)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("record", [None, b"[]", b"{", b'{"../a.c": "1"}', b"{}"])
def test_a_folder_of_others_is_refused(record, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    if record is not None:
        (tmp_path / RECORD).write_bytes(record)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FileError, match="is not empty, and was not generated; give a new folder"):
        write_folder(tmp_path, FILES)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_and_a_missing_parent_are_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="is no folder; give the name of a folder"):
        check_folder(tmp_path / "file")
    with pytest.raises(FileError, match="folder .*no does not exist; make it first"):
        check_folder(tmp_path / "no" / "out")


def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_folder(out, FILES)
    (out / "mine.c").write_bytes(b"mine")
    rename = Path.rename

    def fail(self, target):
        if Path(target) == out and self.joinpath("c.c").exists():
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(FileError, match="cannot be written .No space left on device."):
        write_folder(out, {"c.c": b"three"})
    assert contents(out) == FILES | {"mine.c": b"mine"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
