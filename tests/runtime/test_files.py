import errno
import os

import pytest

from tilewright.hw.errors import FileError
from tilewright.runtime.files import atomic_write, cache_folder, check_writable


def refused(path, text):
    """Neither check nor write accepts `path`; both say `text`."""
    with pytest.raises(FileError) as caught:
        check_writable(path)
    assert str(caught.value) == text
    with pytest.raises(FileError) as caught, atomic_write(path):
        raise AssertionError("the block must not run")
    assert str(caught.value) == text


def test_a_folder_that_takes_no_files_is_named():
    refused("/proc/out", "/proc/out: not writable; /proc takes no files (No such file or directory)")


def test_a_file_appears_when_it_is_whole_and_on_the_disk(tmp_path, monkeypatch):
    """What was there stays until then; permissions are those of any new file."""
    path, calls = tmp_path / "out.bin", []
    path.write_bytes(b"old")
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, real=real, name=name: (calls.append(name), real(*args)))
    with atomic_write(str(path)) as temporary:
        assert temporary.parent == tmp_path and temporary != path
        temporary.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and calls == ["fsync", "replace", "fsync"]
    assert os.listdir(tmp_path) == ["out.bin"]
    umask = os.umask(0o027)
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"new")
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "error, named, text",
    [
        (ZeroDivisionError("x"), ZeroDivisionError, "x"),
        (FULL, FileError, "out.bin: cannot be written \\(No space left on device\\)$"),
    ],
)
@pytest.mark.parametrize("before", [[], ["out.bin"]])
def test_an_error_leaves_what_was_there(tmp_path, error, named, text, before):
    for name in before:
        (tmp_path / name).write_bytes(b"old")
    with pytest.raises(named, match=text), atomic_write(tmp_path / "out.bin") as temporary:
        temporary.write_bytes(b"half")
        raise error
    assert os.listdir(tmp_path) == before and all((tmp_path / name).read_bytes() == b"old" for name in before)


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target.bin", tmp_path / "link.bin"
    for before in (b"old", None):
        target.write_bytes(before) if before else target.unlink()
        link.unlink(missing_ok=True)
        link.symlink_to("there/target.bin")
        check_writable(link)
        with atomic_write(link) as temporary:
            assert temporary.parent == target.parent
            temporary.write_bytes(b"new")
        assert link.is_symlink() and target.read_bytes() == b"new"
        assert os.listdir(target.parent) == ["target.bin"]


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    refused(tmp_path, f"{tmp_path}: is a folder; give a file name")
    refused(pipe, f"{pipe}: is not a regular file; give the name of a file")
    refused(link, f"{pipe}: is not a regular file; give the name of a file")
    refused(os.devnull, f"{os.devnull}: is not a regular file; give the name of a file")
    refused(tmp_path / "none" / "x", f"{tmp_path}/none/x: folder {tmp_path}/none does not exist; make it first")
    assert pipe.is_fifo() and sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_what_may_not_be_written_is_refused(tmp_path, monkeypatch):
    """As root everything may be written, so the system's answer is replaced."""
    path = tmp_path / "x"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda asked, mode: asked != path)
    refused(path, f"{path}: not writable")


def test_caches_are_where_the_user_wants_them(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("tiles") == tmp_path / "tilewright" / "tiles"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("tiles") == tmp_path / ".cache" / "tilewright" / "tiles"
