"""Reads files that others made: JSON, whole numbers, bytes of any amount, archives of arrays.

Every claim of such a file is checked before it costs time or memory; a wrong one raises `FileError`. Limits that do
not follow from the contents are constants here.
"""

from __future__ import annotations

import io
import json
import math
import mmap
import os
import stat
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

from .errors import FileError, one_line

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and few verbs read arrays
    import numpy as np

MANIFEST = "manifest.json"  # the member that makes an archive a program
TEXT_BYTES = 1 << 26  # of a text or a tokenizer
_JSON_BYTES = 1 << 20  # of JSON that people write
_NESTED = 64  # lists and objects inside each other
_GROUPS = 1_000_000  # lists and objects; an empty one takes 3 bytes of a text and 64 of memory
_DIGITS = 100  # characters of a number
_CHUNK = 1 << 16  # bytes unpacked at a time
_HEADER = 1 << 14  # bytes of a .npy member in which its header ends
_KINDS = "biufcSU"  # of dtypes: numbers and text, no objects and no records
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a limit
_DIRECTORY = 1 << 21  # bytes of an archive's directory; a member takes 46 and its name there, 700 in memory
_UNPACKED = 1 << 26, 50  # an archive may unpack to so many bytes, or to so many times its size; deflate reaches 1,030
_UNKNOWN_MEMORY = 1 << 32  # bytes assumed where the system does not say
Needed = Callable[[str, tuple[int, ...]], bool]


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


def default_limit() -> int:
    """How many bytes a file may have, or unpack to, unless someone says otherwise: a quarter of the memory."""
    return machine_memory() // 4


@contextmanager
def open_regular(path: str | Path, wanted: str) -> Generator[IO[bytes], None, None]:
    """The file `path`, open for reading. Raises `FileError`, naming what is `wanted`, for one that is not regular.

    Pipes and devices have no end, or none that comes by itself.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer would block
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; give {wanted}") from None
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


def read_regular(path: str | Path, wanted: str, most: int | None = None) -> bytes:
    """The contents of the file `path`, at most `most` bytes, by default `default_limit`.

    Raises `FileError`, as `open_regular` does, and before it takes memory where the file is larger.
    """
    most = default_limit() if most is None else most
    with open_regular(path, wanted) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileError(f"{path}: has {size:,} bytes; at most {most:,} are allowed; give {wanted}")
        return file.read(size)


def map_regular(path: str | Path, wanted: str) -> bytes:
    """The contents of the file `path`, of any size: only what is read takes memory. Raises as `open_regular`."""
    with open_regular(path, wanted) as file:
        if not os.fstat(file.fileno()).st_size:
            return b""  # which cannot be mapped
        return cast("bytes", mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # slices and searches like bytes


def read_json(path: str | Path, wanted: str, most: int = _JSON_BYTES) -> Any:
    """The JSON value in the file `path`, of at most `most` bytes. Raises `FileError`, naming what is `wanted`."""
    return parse_json(read_regular(path, wanted, most), path, wanted)


def parse_json(data: bytes | bytearray | str, name: object, wanted: str = "") -> Any:
    """The JSON value that `data`, in UTF-8, stands for.

    Raises `FileError`, which begins with `name` and names what is `wanted`: also for an object that has a key twice, a
    number of more than 100 characters or beyond float64, more than 64 lists and objects inside each other, and more
    than 1,000,000 characters that begin one.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        groups = text.count("[") + text.count("{")
        if groups > _GROUPS:
            raise ValueError(f"{groups:,} lists and objects; at most {_GROUPS:,} are allowed")
        found = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_real, parse_constant=_no_number
        )
        if not _is_deep(found):
            return found
        why = f"more than {_NESTED} lists and objects inside each other"
    except RecursionError:
        why = f"more than {_NESTED} lists and objects inside each other"
    except ValueError as exc:
        why = one_line(exc)
    raise FileError(f"{name}: cannot be read as JSON ({why}){f'; give {wanted}' if wanted else ''}") from None


def whole_number(text: str) -> int | None:
    """The number that the decimal digits `text` stand for; None for anything else, and for more than 100 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(_NESTED + 1):  # no recursion: its depth would be the file's
        inside = [cast("dict[str, object] | list[object]", one) for one in level if isinstance(one, (dict, list))]
        level = [one for group in inside for one in (group.values() if isinstance(group, dict) else group)]
        if not inside:
            return False
    return True


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"key {key!r} comes {count} times in one object")
    return found


def _integer(text: str) -> int:
    return int(_short(text))


def _real(text: str) -> float:
    found = float(_short(text))
    if math.isinf(found):
        raise ValueError(f"{text} is too large for a number of 64 bits")
    return found


def _short(text: str) -> str:
    if len(text) > _DIGITS:
        raise ValueError(f"a number of {len(text):,} characters; at most {_DIGITS} are allowed")
    return text


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def is_array(data: bytes | bytearray) -> bool:
    """Whether `data` begins as a .npy file does."""
    return data[:6] == b"\x93NUMPY"


class _Pieces:
    """A file that zipfile reads in pieces; the largest is an archive's directory, of as many bytes as the file says."""

    def __init__(self, file: IO[bytes], name: str):
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self._file, self._name = file, name

    def read(self, count: int | None = None, /) -> bytes:
        """At most `count` bytes, else up to the file's end, near which that is asked for.

        Raises `FileError` for more than a directory may have.
        """
        count = 2 * _CHUNK if count is None else count
        if count > _DIRECTORY:
            raise FileError(f"{self._name}: its directory has {count:,} bytes; at most {_DIRECTORY:,} are allowed")
        return self._file.read(count)


class Archive:
    """The zip archive in `file`, which messages call `name`; all that is read of it together has at most `most` bytes.

    Raises `FileError` where it unpacks to more, or to more than an archive of its size may, and where the file has more
    than `default_limit` bytes, or more than 2 MiB of directory. Damage raises errors of any kind, those of zipfile,
    zlib and numpy among them: callers name the file in their place.
    """

    def __init__(self, file: IO[bytes], name: str, most: int | None = None):
        size, allowed = file.seek(0, os.SEEK_END), default_limit()
        if size > allowed:
            raise FileError(f"{name}: has {size:,} bytes; at most {allowed:,} are allowed")
        self._zip, self._name = zipfile.ZipFile(_Pieces(file, name)), name
        least, times = _UNPACKED
        most = min(allowed if most is None else most, max(least, times * size))
        self._most = self._left = most
        members = self._zip.infolist()
        size = sum(member.file_size for member in members)
        if size > most:
            raise FileError(f"{name}: unpacks to {size:,} bytes; at most {most:,} are allowed for a file of its size")
        for member, count in Counter(self.names).items():
            if count > 1:
                self._refuse(member, f"comes {count} times")
        for member in members:
            if member.flag_bits & 1 or member.compress_type not in _METHODS:
                self._refuse(member.filename, "is encrypted, or neither stored nor deflated")

    @property
    def names(self) -> list[str]:
        """The names of the members, in the order of the archive."""
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

    def start(self, member: str, count: int) -> bytes:
        """The first `count` bytes of `member`."""
        with self._zip.open(member) as packed:
            return packed.read(count)

    def array(self, member: str, needed: Needed | None = None) -> np.ndarray:
        """The array in the .npy `member`, in C order and of the machine's byte order.

        Where its name and shape are not `needed`, it is not unpacked, and holds zeros without memory of their own.
        Raises ValueError for what is no array of numbers or text, or promises other data than it holds.
        """
        import numpy as np

        start = self.start(member, _HEADER)
        head = io.BytesIO(start)
        if not is_array(start):
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
        promised, held = math.prod(shape) * dtype.itemsize, self._zip.getinfo(member).file_size - head.tell()
        if promised != held:
            self._refuse(member, f"promises {promised:,} bytes and holds {held:,}")
        if needed is not None and not needed(member.removesuffix(".npy"), shape):
            return np.broadcast_to(np.zeros((), dtype), shape)
        data = self.read(member)
        found = np.ndarray(shape, dtype, data, head.tell(), order="F" if fortran else "C")
        if dtype.kind == "U" and (np.frombuffer(data, dtype.byteorder + "u4", -1, head.tell()) > sys.maxunicode).any():
            self._refuse(member, "holds numbers that are no characters")
        native = f"U{dtype.itemsize // 4}" if dtype.kind == "U" else dtype.type
        return np.require(found, native, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])

    def json(self, member: str, most: int) -> Any:
        """The JSON value in `member`, at most `most` bytes long. Raises as `parse_json`."""
        return parse_json(self.read(member, most), f"{self._name}: {member}")

    def _refuse(self, member: str, text: str) -> NoReturn:
        raise ValueError(f"{member!r} {text}")


def read_npz(path: str | Path, most: int | None = None, needed: Needed | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, `most` bytes together, by default `default_limit`.

    An array whose name and shape are not `needed` is not unpacked: it has its shape and type, and zeros. Raises
    `FileError` where the file is missing, damaged or too large, and where it holds anything but numbers and text.
    """
    with open_regular(path, "an .npz file") as file:
        return npz_arrays(file, str(path), most, needed)


def npz_arrays(
    file: IO[bytes], path: str, most: int | None = None, needed: Needed | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an open .npz file, which errors call `path`. Takes and raises the same as `read_npz`."""
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
            if not is_array(archive.start(member, 6)):
                raise FileError(f"{path}: not an .npz file of arrays, it holds {member!r}")
            if not member.isprintable():
                raise FileError(f"{path}: the name {member!r} is not printable")
            if (name := member.removesuffix(".npy")) in found:
                raise FileError(f"{path}: holds {name!r} twice")
            found[name] = archive.array(member, needed)
    except FileError:
        raise
    except Exception as exc:  # damaged bytes make zipfile, zlib and numpy's header parser raise errors of any kind
        raise FileError(f"{path}: not a readable .npz file ({one_line(exc)})") from None
    return found
