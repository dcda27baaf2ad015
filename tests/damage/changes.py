"""Ways to damage a file: its bytes, or what they say; each copy follows from its seed."""

from __future__ import annotations

import io
import random
import struct

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
    if rng.random() < 0.25:
        return damage_bytes(data, seed)
    archive = Archive(data)
    if "meta.npy" in archive.members and rng.random() < 0.4:  # a case's JSON, in an array of text
        text = str(np.load(io.BytesIO(archive.members["meta.npy"])))
        put(archive, "meta.npy", np.array(damage_json(text.encode(), seed).decode(errors="replace")))
        return archive.to_bytes()
    rng.choices((change_elements, change_array, change_member), (4, 2, 1))[0](rng, archive)
    return archive.to_bytes()


def damage_programs(data: bytes, seed: int) -> bytes:
    """A copy of a delegate's file: its facts, a program in it, or the archive."""
    rng = random.Random(seed)
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
            ["", "0", "9", "-", "x", "_", "i", "\0", "\n", "²", "٣", "9" * 30]
        )
    return "".join(text).encode()
