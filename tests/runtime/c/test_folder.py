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


@pytest.mark.parametrize("there", [False, True])
def test_a_new_or_an_empty_folder(there, tmp_path):
    if there:
        (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", FILES)
    assert contents(tmp_path / "out") == FILES
    assert set(json.loads((tmp_path / "out" / RECORD).read_bytes())) == set(FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~umask


def test_what_was_generated_is_replaced_and_the_rest_stays(tmp_path):
    out = tmp_path / "out"
    write_folder(out, FILES)
    (out / "build").mkdir()
    (out / "build" / "x.o").write_bytes(b"object")
    (out / "mine.c").write_bytes(b"mine")
    (out / "b.h").unlink()
    write_folder(out, {"a.c": b"new"})
    assert (out / "build" / "x.o").read_bytes() == b"object"
    assert {p.name for p in out.iterdir()} == {"a.c", "mine.c", "build", RECORD}
    assert (out / "a.c").read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def changed(out):
    write_folder(out, FILES)
    (out / "a.c").write_bytes(b"by hand")


def with_another(out):
    write_folder(out, FILES)
    (out / "c.c").write_bytes(b"mine")


def of_others(record):
    def make(out):
        out.mkdir()
        (out / "x").write_bytes(b"x")
        if record is not None:
            (out / RECORD).write_bytes(record)

    return make


OTHERS = r"is not empty, and was not generated; give a new folder"


@pytest.mark.parametrize(
    "prepare, text",
    [
        (changed, r"a\.c was changed since it was generated; give a new folder"),
        (with_another, r"c\.c was not generated; give a new folder, or move"),
        (lambda out: out.write_bytes(b""), "is no folder; give the name of a folder"),
        *((of_others(record), OTHERS) for record in (None, b"[]", b"{", b'{"../a.c": "1"}', b"{}")),
    ],
)
def test_nothing_of_a_user_is_lost(prepare, text, tmp_path):
    out = tmp_path / "out"
    prepare(out)
    before = {p: p.read_bytes() for p in (out.iterdir() if out.is_dir() else [out])}
    with pytest.raises(FileError, match=text):
        write_folder(out, FILES | {"c.c": b"three"})
    assert {p: p.read_bytes() for p in (out.iterdir() if out.is_dir() else [out])} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_folders_that_cannot_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="is the working folder, which is replaced; start from another"):
        write_folder(".", FILES)
    with pytest.raises(FileError, match="the name of the folder is empty"):
        check_folder("")
    with pytest.raises(FileError, match="folder .*no does not exist; make it first"):
        check_folder(tmp_path / "no" / "out")
    assert not [*tmp_path.iterdir()]


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
