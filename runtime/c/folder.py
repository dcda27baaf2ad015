"""Folders of generated files: written whole or not at all, and again only where nothing of a user would be lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...hw.errors import FileError
from ...hw.foreign import read_json

RECORD = "generated.json"  # names and digests of the files that were generated


def check_folder(folder: str | Path) -> None:
    """Raise `FileError` where `write_folder` would refuse; for use before the work whose result goes there."""
    path = Path(folder)
    if not str(folder):
        raise FileError("the name of the folder is empty; give one, which is made")
    try:
        path = path.resolve()
        if path.exists() and not path.is_dir():
            raise FileError(f"{folder}: is no folder; give the name of a folder, which is made")
        if not path.parent.is_dir():
            raise FileError(f"{folder}: folder {path.parent} does not exist; make it first")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise FileError(f"{folder}: {path.parent} is not writable")
        if path.is_dir() and path.samefile(Path.cwd()):
            raise FileError(f"{folder}: is the working folder, which is replaced; start from another, as the one above")
        if path.is_dir() and any(path.iterdir()):
            _check_ours(folder, path)
    except OSError as exc:
        raise FileError(f"{folder}: {exc.strerror or exc}") from None


def _check_ours(folder: str | Path, path: Path) -> None:
    """Raise `FileError` where a folder that is not empty was not generated, or has files that were changed since."""
    known = _record(path)
    if not known:
        raise FileError(f"{folder}: is not empty, and was not generated; give a new folder")
    for name, digest in known.items():
        file = path / name
        if file.exists() and _digest(file.read_bytes()) != digest:
            raise FileError(f"{folder}: {name} was changed since it was generated; give a new folder, or move the file")


def write_folder(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` of `files` by name, in place of those that were generated before; others in it stay.

    Raises `FileError`; then the folder is as it was.
    """
    check_folder(folder)
    path = Path(folder).resolve()
    for name in sorted({*files} - {*_record(path)}):
        if (path / name).exists():
            raise FileError(f"{folder}: {name} was not generated; give a new folder, or move the file")
    try:
        new = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as exc:
        raise FileError(f"{folder}: cannot be written ({exc.strerror or exc})") from None
    try:
        umask = os.umask(0)
        os.umask(umask)
        new.chmod(0o777 & ~umask)
        record = {name: _digest(data) for name, data in files.items()}
        for name, data in {**files, RECORD: (json.dumps(record, indent=1) + "\n").encode()}.items():
            (new / name).write_bytes(data)
        _replace(path, new, {*_record(path), RECORD, *files})
    except OSError as exc:
        raise FileError(f"{folder}: cannot be written ({exc.strerror or exc})") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _replace(path: Path, new: Path, ours: set[str]) -> None:
    """Put folder `new` in the place of `path`; files in `path` that are not `ours` move with it."""
    if not path.exists():
        new.rename(path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    path.rename(old)  # an empty folder is replaced
    try:
        for other in [entry for entry in old.iterdir() if entry.name not in ours]:
            other.rename(new / other.name)
        new.rename(path)
    except OSError:
        for other in [entry for entry in new.iterdir() if entry.name not in ours]:
            other.rename(old / other.name)
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _record(path: Path) -> dict[str, str]:
    """Digests of the generated files in a folder by name; empty without a record, or with one of another kind."""
    found: Any = None
    with suppress(FileError):
        found = read_json(path / RECORD, "a record")
    pairs: list[tuple[Any, Any]] = [*found.items()] if type(found) is dict else []
    valid = all(isinstance(digest, str) and Path(name).name == name for name, digest in pairs)
    return dict(pairs) if valid else {}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
