"""Ways to damage a file: its bytes, or what they say; each copy follows from its seed."""

from __future__ import annotations

import io
import random
import re
import sqlite3
import struct
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

from tests.fuzz_tw import (
    Archive,
    Tree,
    change_array,
    change_elements,
    change_entry,
    change_member,
    damaged,
    places,
    put,
    replace_value,
)

# what counts, offsets and sizes in a header may not be: signs, ends of ranges, powers of two
WORDS = [0, 1, 2, 3, 255, 256, 32767, 65535, 65536, 1 << 20, 1 << 24, 1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]


def flip_bits(rng: random.Random, data: bytearray) -> None:
    """One to eight bits turned over, anywhere."""
    for _ in range(rng.choice((1, 1, 2, 8))):
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8


def cut(rng: random.Random, data: bytearray) -> None:
    """The end is missing."""
    del data[rng.randrange(len(data)) :]


def put_word(rng: random.Random, data: bytearray) -> None:
    """Four bytes become another number, most often near the start, where headers are."""
    if len(data) >= 4:
        at = rng.randrange(min(len(data) - 3, 64 if rng.random() < 0.3 else len(data)))
        at -= at % 4 if rng.random() < 0.8 else 0
        old = int.from_bytes(data[at : at + 4], "little")
        new = rng.choice(WORDS) if rng.random() < 0.6 else (old + rng.choice((-64, -4, -1, 1, 4, 64))) % (1 << 32)
        data[at : at + 4] = struct.pack("<I", new)


def change_range(rng: random.Random, data: bytearray) -> None:
    """Some bytes are lost, doubled, zeroed, or those from elsewhere."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 4, 16, 100)))
    there = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        del data[start:end]
    elif kind == 1:
        data[there:there] = data[start:end]
    else:
        data[start:end] = bytes(end - start) if kind == 2 else data[there : there + end - start]


# one copy in so many has a value that is deep, or has a million digits
BOMBED = 8
_DEEP, _DIGITS = 200_000, b"1" * 1_000_000
BOMBS = (b"[" * _DEEP + b"]" * _DEEP, _DIGITS, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP, b"0." + _DIGITS)
_VALUE = re.compile(rb'(?<=[\[,: ])(-?[\d.]+|true|false|null|"[^"\\]*")(?=\s*[\],}])')
_HEADERS = (b"(" * 4000 + b")" * 4000, b"(" + _DIGITS[:9000] + b",)")  # shapes of arrays
CONTROLS = "\x1b]0;x\x07\x9b\u202e"


def bomb(data: bytes, seed: int) -> bytes:
    """A copy of a JSON text with one value that takes a reader's stack, or its time."""
    place = random.Random(seed).choice(list(_VALUE.finditer(data)))
    return data[: place.start()] + BOMBS[seed // BOMBED % len(BOMBS)] + data[place.end() :]


def bomb_member(data: bytes, name: str, seed: int) -> bytes:
    """A copy of an archive with such a value in its member `name`, of JSON."""
    archive = Archive(data, "")
    archive.members[name] = bomb(archive.members[name], seed)
    return archive.to_bytes()


def controls(data: bytes, seed: int) -> bytes:
    """A copy whose texts, as names and pieces, have control characters, and as many bytes where it is no JSON."""
    rng = random.Random(seed)
    if data.startswith(b"PK"):
        archive = Archive(data, "")
        archive.members |= {name: controls(m, seed) for name, m in archive.members.items() if m.startswith(b"{")}
        return archive.to_bytes()
    if data.startswith(b"{"):
        text = CONTROLS.encode("ascii", "backslashreplace").replace(b"\\x", b"\\u00")
        return re.sub(rb'": "', lambda m: m[0] + text * (rng.random() < 0.5), data)
    moving = b"\x1b\x07\x7f\x08" * len(data)
    return re.sub(rb"[A-Za-z_]{4,}", lambda m: moving[: len(m[0])] if rng.random() < 0.3 else m[0], data)


BYTES = (flip_bits, cut, put_word, change_range)


def damage_bytes(data: bytes, seed: int) -> bytes:
    """A copy with one to three such changes."""
    rng, found = random.Random(seed), bytearray(data)
    for change in rng.choices(BYTES, (6, 2, 6, 2), k=rng.choice((1, 1, 1, 2, 3))):
        if found:
            change(rng, found)
    return bytes(found)


def damage_json(data: bytes, seed: int) -> bytes:
    """A copy of a JSON file whose bytes or, more often, whose values were changed."""
    rng = random.Random(seed)
    if seed % BOMBED == 0:
        return bomb(data, seed)
    if rng.random() < 0.3:
        return damage_bytes(data, seed)
    tree = Tree(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if places(tree.manifest):
            rng.choice((replace_value, replace_value, change_entry))(rng, tree)
    return tree.to_bytes()


def damage_npz(data: bytes, seed: int) -> bytes:
    """A copy of an .npz file: the archive's bytes, or elements, header or shape of an array in it."""
    rng = random.Random(seed)
    if seed % BOMBED and rng.random() < 0.25:
        return damage_bytes(data, seed)
    archive = Archive(data)
    if "meta.npy" in archive.members and (seed % BOMBED == 0 or rng.random() < 0.4):  # a case's JSON, in an array
        text = str(np.load(io.BytesIO(archive.members["meta.npy"])))
        put(archive, "meta.npy", np.array(damage_json(text.encode(), seed).decode(errors="replace")))
        return archive.to_bytes()
    if seed % BOMBED:
        rng.choices((change_elements, change_array, change_member), (4, 2, 1))[0](rng, archive)
    else:
        shape = _HEADERS[seed // BOMBED % len(_HEADERS)]
        header = b"{'descr': '<i4', 'fortran_order': False, 'shape': " + shape + b"}\n"
        member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
        archive.members[rng.choice(sorted(archive.members))] = member
    return archive.to_bytes()


def damage_tw(data: bytes, seed: int) -> bytes:
    """A copy of a program: as tests/fuzz_tw.py damages it, or with such a value in its manifest."""
    return damaged(data, seed) if seed % BOMBED else bomb_member(data, "manifest.json", seed)


def damage_onnx(data: bytes, seed: int) -> bytes:
    """A copy of an ONNX file: its bytes, or a constant whose data lies at a place of a million digits."""
    if seed % BOMBED:
        return damage_bytes(data, seed)
    import onnx

    model = onnx.load_model_from_string(data)
    tensor = random.Random(seed).choice(model.graph.initializer)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    key = ("offset", "length")[seed // BOMBED % 2]
    for name, value in {"location": "damaged.onnx", key: _DIGITS.decode()}.items():
        tensor.external_data.add(key=name, value=value)
    return model.SerializeToString()


def damage_db(data: bytes, seed: int) -> bytes:
    """A copy of a database: its bytes, or a JSON text in one of its rows."""
    if seed % BOMBED:
        return damage_bytes(data, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.db")
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as base, base:
            tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = [(table, row[1]) for table in tables for row in base.execute(f"PRAGMA table_info({table})")]
            found = [
                (table, column, *row)
                for table, column in columns
                for row in base.execute(f"SELECT rowid, {column} FROM {table}")
                if isinstance(row[1], str) and _VALUE.search(row[1].encode())
            ]
            table, column, row, text = random.Random(seed).choice(found)
            text = bomb(text.encode(), seed).decode()
            base.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (text, row))
        return path.read_bytes()


def damage_programs(data: bytes, seed: int) -> bytes:
    """A copy of a delegate's file: its facts, a program in it, or the archive."""
    rng = random.Random(seed)
    if seed % BOMBED == 0:
        return bomb_member(data, "delegate.json", seed)
    if rng.random() < 0.25:
        return damage_bytes(data, seed)
    archive = Archive(data, "delegate.json")
    if rng.random() < 0.6:
        rng.choice((replace_value, change_entry))(rng, archive)
    else:
        name = rng.choice(sorted(name for name in archive.members if name.endswith(".tw")))
        archive.members[name] = damaged(archive.members[name], seed)
    return archive.to_bytes()


def damage_text(data: bytes, seed: int) -> bytes:
    """A copy of a line of text: characters lost, doubled, replaced."""
    rng, text = random.Random(seed), list(data.decode())
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(text) + 1)
        text[at : at + rng.randrange(2)] = rng.choice(
            ["", "0", "9", "-", "x", "_", "i", "\0", "\n", "²", "٣", "9" * 30, _DIGITS.decode()]
        )
    return "".join(text).encode()
