"""Ways to damage a file: its bytes, or what they say; each copy follows from its seed."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import sqlite3
import struct
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

STRANGE = [None, True, False, 0, -1, 1, 2, 3, 1.5, "", "x", "a\nb", [], {}, [0], [[]]]
STRANGE += [1 << 31, -(1 << 31), 1 << 62, 1 << 70]
STRANGE += ["input", "output", "temp", "constant", "state", "int8", "int32", "float32", "reshape", "pack", "max_pool"]


class Tree:
    """A JSON value, `manifest`, ready to be damaged."""

    def __init__(self, data: bytes):
        self.manifest = json.loads(data)

    def to_bytes(self) -> bytes:
        """The contents of the damaged file."""
        return json.dumps(self.manifest).encode()


class Archive(Tree):
    """The members of a zip archive, that named `json`, if any, parsed as `manifest`, ready to be damaged."""

    def __init__(self, data: bytes, json: str = "manifest.json"):
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            self.members = {name: z.read(name) for name in z.namelist()}
        self.json = json
        super().__init__(self.members.get(json, b"{}"))

    def to_bytes(self) -> bytes:
        """The contents of the damaged file."""
        out, tree = io.BytesIO(), {self.json: super().to_bytes()} if self.json in self.members else {}
        with zipfile.ZipFile(out, "w") as z:
            for name, data in (self.members | tree).items():
                z.writestr(zipfile.ZipInfo(name), data)  # which carries no time
        return out.getvalue()


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Paths of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, inner in items for found in [(*path, key), *places(inner, (*path, key))]]


def holder(value, path: tuple):
    """What holds the last key of `path`."""
    for key in path[:-1]:
        value = value[key]
    return value


def replace_value(rng: random.Random, tw: Tree) -> None:
    """Another value in place of one: a strange one, one near by, or one from elsewhere in the manifest."""
    paths = places(tw.manifest)
    path = rng.choice(paths)
    where, key = holder(tw.manifest, path), path[-1]
    old = where[key]
    if type(old) is int and rng.random() < 0.5:
        where[key] = old + rng.choice((-1, 1, -old - 1, old, 7, 1 << 20))
    elif rng.random() < 0.5:
        other = rng.choice(paths)
        where[key] = copy.deepcopy(holder(tw.manifest, other)[other[-1]])
    else:
        where[key] = rng.choice(STRANGE)


def change_entry(rng: random.Random, tw: Tree) -> None:
    """An entry of a list or object is lost, doubled, or exchanged with another."""
    path = rng.choice(places(tw.manifest))
    where, key = holder(tw.manifest, path), path[-1]
    if isinstance(where, dict):
        where[rng.choice(["", "wings", *where])] = where.pop(key)
    elif rng.random() < 0.4:
        del where[key]
    elif rng.random() < 0.5:
        where.append(copy.deepcopy(where[key]))
    else:
        k = rng.randrange(len(where))
        where[key], where[k] = where[k], where[key]


def change_elements(rng: random.Random, tw: Archive) -> None:
    """Bits of an array turned over: instructions, relocations, constants."""
    name = rng.choice([name for name in tw.members if name.endswith(".npy")])
    array = np.load(io.BytesIO(tw.members[name]))
    data = bytearray(array.tobytes())
    for _ in range(rng.choice((1, 1, 2, 8)) if data else 0):
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
    put(tw, name, np.frombuffer(bytes(data), array.dtype).reshape(array.shape))


def change_array(rng: random.Random, tw: Archive) -> None:
    """Another shape, dtype, order, or length of an array."""
    name = rng.choice([name for name in tw.members if name.endswith(".npy")])
    array = np.atleast_1d(np.load(io.BytesIO(tw.members[name])))
    changes: list[Callable[[], np.ndarray]] = [
        lambda: (array.view("u1") if array.dtype.kind == "U" else array).astype(
            rng.choice(["int8", "float32", ">u8", "uint64", "int32", "bool", "U4", "complex64"])
        ),
        lambda: array[: rng.randrange(len(array) + 1)],
        lambda: np.concatenate([array, array]),
        lambda: np.asfortranarray(array),
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array[:, None],
        lambda: np.zeros((0, *array.shape[1:]), array.dtype),
    ]
    put(tw, name, rng.choice(changes)())


def change_member(rng: random.Random, tw: Archive) -> None:
    """Bytes of a member, header included, lost or turned over; or one member in place of another."""
    name = rng.choice([name for name in tw.members if name.endswith(".npy")])
    data = bytearray(tw.members[name])
    kind = rng.randrange(3)
    if kind == 0:
        data = data[: rng.randrange(len(data))]
    elif kind == 1:
        data[rng.randrange(min(128, len(data)))] = rng.randrange(256)
    else:
        data = bytearray(tw.members[rng.choice([*tw.members])])
    tw.members[name] = bytes(data)


def put(tw: Archive, name: str, array: np.ndarray) -> None:
    """Store `array` as the member `name`."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    tw.members[name] = out.getvalue()


def damaged(data: bytes, seed: int) -> bytes:
    """A copy of the `.tw` file `data`, damaged in one to three places."""
    rng = random.Random(seed)
    if rng.random() < 0.15:  # the archive itself
        found = bytearray(data)
        for _ in range(rng.choice((1, 1, 4))):
            bit = rng.randrange(8 * len(found))
            found[bit // 8] ^= 1 << bit % 8
        return bytes(found[: rng.randrange(len(found))] if rng.random() < 0.1 else found)
    tw = Archive(data)
    kinds = (replace_value, change_entry, change_elements, change_array, change_member)
    chosen = rng.choices(kinds, (8, 3, 4, 2, 1), k=rng.choice((1, 1, 1, 2, 3)))
    for change in sorted(chosen, key=kinds.index):  # the members last: what is damaged there may be no array any more
        change(rng, tw)
    return tw.to_bytes()


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
    """A copy of a program: as `damaged`, or with such a value in its manifest."""
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
