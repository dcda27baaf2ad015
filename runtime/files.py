"""Files: atomic writes, digests of the sources, and zip archives of arrays that strangers made.

Of such an archive every claim is checked before it costs time or memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import stat
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from ..hw.errors import FileError

MANIFEST = "manifest.json"  # the member that makes an archive a program
_CHUNK = 1 << 16  # bytes unpacked at a time
_HEADER = 1 << 14  # bytes of a .npy member in which its header ends
_KINDS = "biufcSU"  # of dtypes: numbers and text, no objects and no records
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a limit
_UNKNOWN_MEMORY = 1 << 32  # bytes assumed where the system does not say


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
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise FileError(f"{path}: not writable")


def add_member(archive: zipfile.ZipFile, name: str, data: bytes | str) -> None:
    """Put `data` into the archive as `name`, without the time of day: equal contents make equal archives."""
    archive.writestr(zipfile.ZipInfo(name), data, compress_type=archive.compression)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
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
        _sync(temporary)  # otherwise a power cut can leave the new name with nothing behind it
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
    """The folder of what is kept of one `kind`: in `$XDG_CACHE_HOME/tilewright`, or in ~/.cache/tilewright."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / kind


def sources_digest(*folders: str) -> str:
    """A digest of every source file of top folders of the package (`hw`, `sim`, ...), subfolders included.

    Caches store it with each result, so that they never return one that other sources made.
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


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


def default_limit() -> int:
    """How many bytes a file may unpack to unless someone says otherwise: a quarter of the memory."""
    return machine_memory() // 4


@contextmanager
def open_regular(path: str | Path, wanted: str) -> Iterator[IO[bytes]]:
    """The file `path`, open for reading. Raises `FileError`, naming what is `wanted`, for one that is not regular.

    Pipes and devices have no end, or none that comes by itself.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would block
    except FileNotFoundError:
        raise FileError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FileError(f"{path}: is a folder; give {wanted}") from None
    except (OSError, ValueError) as exc:
        raise FileError(f"{path}: cannot be read ({getattr(exc, 'strerror', None) or exc})") from None
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileError(f"{path}: is {what}; give {wanted}")
    with os.fdopen(handle, "rb") as file:
        yield file


def read_regular(path: str | Path, wanted: str, most: int) -> bytes:
    """The contents of the file `path`, at most `most` bytes. Raises `FileError`, as `open_regular` does."""
    with open_regular(path, wanted) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileError(f"{path}: has {size:,} bytes; at most {most:,} are allowed")
        return file.read(size)  # which sets so much memory aside: not `most`


def one_line(exc: BaseException) -> str:
    """What `exc` says, as one short printable line."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    return "".join(c if c.isprintable() else "?" for c in text[:500])


def is_array(data: bytes | bytearray) -> bool:
    """Whether `data` begins as a .npy file does."""
    return data[:6] == np.lib.format.MAGIC_PREFIX


class Archive:
    """The zip archive in `file`, which messages call `name`; all that is read of it together has at most `most` bytes.

    Raises `FileError` where it unpacks to more. Damage raises errors of any kind, those of zipfile, zlib, json and
    numpy among them: callers name the file in their place.
    """

    def __init__(self, file: IO[bytes], name: str, most: int):
        self._zip, self._name, self._most, self._left = zipfile.ZipFile(file), name, most, most
        members = self._zip.infolist()
        size = sum(member.file_size for member in members)
        if size > most:
            raise FileError(f"{name}: unpacks to {size:,} bytes; at most {most:,} are allowed")
        for member, count in Counter(self.names).items():
            if count > 1:
                self._refuse(member, f"comes {count} times")
        for member in members:
            if member.flag_bits & 1 or member.compress_type not in _METHODS:
                self._refuse(member.filename, "is encrypted, or neither stored nor deflated")

    @property
    def names(self) -> list[str]:
        """Its members."""
        return self._zip.namelist()

    def read(self, member: str, most: int | None = None) -> bytearray:
        """The bytes of `member`, at most `most`; they are counted as they are unpacked, whatever the directory says."""
        data = bytearray()
        with self._zip.open(member) as packed:
            while chunk := packed.read(_CHUNK):
                data += chunk
                self._left -= len(chunk)
                if self._left < 0:
                    raise FileError(f"{self._name}: unpacks to more than {self._most:,} bytes, the most allowed")
                if most is not None and len(data) > most:
                    self._refuse(member, f"has more than {most:,} bytes, the most allowed")
        return data

    def start(self, member: str) -> bytes:
        """The first bytes of `member`."""
        with self._zip.open(member) as packed:
            return packed.read(6)

    def array(self, member: str) -> np.ndarray:
        """The array in the .npy `member`, in C order and of the machine's byte order.

        Raises ValueError for what is no array of numbers or text, or promises other data than it holds.
        """
        data = self.read(member)
        head = io.BytesIO(bytes(data[:_HEADER]))
        if not is_array(data):
            self._refuse(member, "is no array (.npy)")
        version = np.lib.format.read_magic(head)
        if version not in ((1, 0), (2, 0)):
            self._refuse(member, f"is an array of .npy version {version}; 1.0 and 2.0 are read")
        parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = parse(head)
        if dtype.kind not in _KINDS or dtype.names or dtype.subdtype or not dtype.itemsize:
            self._refuse(member, f"holds {dtype}: only numbers and text are read")
        if any(type(n) is not int or n < 0 for n in shape):
            self._refuse(member, f"has shape {shape}: dimensions are integers from 0 on")
        promised, held = math.prod(shape) * dtype.itemsize, len(data) - head.tell()
        if promised != held:
            self._refuse(member, f"promises {promised:,} bytes and holds {held:,}")
        found = np.ndarray(shape, dtype, data, head.tell(), order="F" if fortran else "C")
        if dtype.kind == "U" and (np.frombuffer(data, dtype.byteorder + "u4", -1, head.tell()) > sys.maxunicode).any():
            self._refuse(member, "holds numbers that are no characters")
        return np.require(found, dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])

    def json(self, member: str, most: int) -> object:
        """The JSON value in `member`, at most `most` bytes long. Raises ValueError for an object with a key twice."""
        return json.loads(self.read(member, most).decode(), object_pairs_hook=_object, parse_constant=_no_number)

    def _refuse(self, member: str, text: str) -> NoReturn:
        raise ValueError(f"{member!r} {text}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {key!r} comes {count} times in one object")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def read_npz(path: str | Path, most: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, `most` bytes together, by default `default_limit`.

    Raises `FileError` where it is missing, damaged or too large, and where it holds anything but numbers and text.
    """
    with open_regular(path, "an .npz file") as file:
        return npz_arrays(file, str(path), default_limit() if most is None else most)


def npz_arrays(file: IO[bytes], path: str, most: int) -> dict[str, np.ndarray]:
    """The arrays of an open .npz file, `most` bytes together; errors call it `path`. Raises as `read_npz`."""
    found: dict[str, np.ndarray] = {}
    try:
        if not zipfile.is_zipfile(file):
            alone = file.seek(0) == 0 and is_array(file.read(6))
            what = "one array, not an .npz file" if alone else "not a readable .npz file (no whole zip archive)"
            raise FileError(f"{path}: {what}")
        archive = Archive(file, path, most)
        for member in archive.names:
            if member == MANIFEST:
                raise FileError(f"{path}: is a program, not an .npz file of arrays")
            if not is_array(archive.start(member)):
                raise FileError(f"{path}: not an .npz file of arrays, it holds {member!r}")
            if not member.isprintable():
                raise FileError(f"{path}: the name {member!r} is not printable")
            if (name := member.removesuffix(".npy")) in found:
                raise FileError(f"{path}: holds {name!r} twice")
            found[name] = archive.array(member)
    except FileError:
        raise
    except Exception as exc:  # damaged bytes make zipfile, zlib and numpy's header parser raise errors of any kind
        raise FileError(f"{path}: not a readable .npz file ({one_line(exc)})") from None
    return found
