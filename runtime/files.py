"""Files that are written: whole or not at all, and without the time of day; digests of the sources."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..hw.errors import FileError


def _resolved(path: str | Path) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as exc:  # which one a loop of links raises depends on Python's version
        raise FileError(f"{path}: {exc}") from None


def check_writable(path: str | Path) -> None:
    """Raise `FileError` where `path` cannot be written; for use before the work whose result goes there.

    Only regular files are written: a device or a pipe would be replaced by a file, not written to.
    """
    path = _resolved(path)
    folder = path.parent
    if path.is_dir():
        raise FileError(f"{path}: is a folder; give a file name")
    if path.exists() and not path.is_file():
        raise FileError(f"{path}: is not a regular file; give the name of a file")
    if not folder.is_dir():
        raise FileError(f"{path}: folder {folder} does not exist; make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise FileError(f"{path}: not writable")
    try:
        tempfile.TemporaryFile(dir=folder).close()  # a folder of /proc, say, has rights that it does not keep
    except OSError as exc:
        raise FileError(f"{path}: not writable; {folder} takes no files ({exc.strerror or exc})") from None


def add_member(archive: zipfile.ZipFile, name: str, data: bytes | str) -> None:
    """Put `data` into the archive as `name`, without the time of day: equal contents make equal archives."""
    archive.writestr(zipfile.ZipInfo(name), data, compress_type=archive.compression)


@contextmanager
def atomic_write(path: str | Path) -> Generator[Path]:
    """A temporary file beside `path` that replaces it when the block succeeds, and is deleted when it fails.

    A symbolic link stays; the file that it points to is replaced. Raises `FileError`.
    """
    check_writable(path)
    path = _resolved(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as exc:
        raise FileError(f"{path}: cannot be written ({exc.strerror or exc})") from None
    os.close(handle)
    temporary = Path(name)
    umask = os.umask(0)
    os.umask(umask)
    try:
        yield temporary
        temporary.chmod(0o666 & ~umask)
        _sync(temporary)  # otherwise a power cut can leave an empty file under the new name
        os.replace(temporary, path)
        with suppress(OSError):  # of a folder that cannot be read, or not synced: the file is whole either way
            _sync(path.parent)
    except OSError as exc:
        raise FileError(f"{path}: cannot be written ({exc.strerror or exc})") from None
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until the file or folder `path` is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder(kind: str) -> Path:
    """The cache folder for results of one `kind`, in `$XDG_CACHE_HOME/tilewright` or ~/.cache/tilewright."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / kind


def sources_digest(*folders: str) -> str:
    """A digest of every source file of top folders of the package (`hw`, `sim`, ...), subfolders included.

    Caches store it with each result, so that they never return a result of other sources.
    """
    top = Path(__file__).parents[1]
    files = sorted(
        file for folder in folders for kind in ("*.py", "*.cpp", "*.json") for file in (top / folder).rglob(kind)
    )
    digest = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.relative_to(top).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
