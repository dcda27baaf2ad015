"""Damages `.tw` files and sees what comes of them: `python tests/fuzz_tw.py X.tw [--count N] [--seed N]`.

A damaged copy is loaded, verified, and run on the behavioural model. It may be refused by a named error, or run; it may
not raise anything else. Every copy follows from its seed.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import sys
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tilewright.hw.errors import TilewrightError
from tilewright.runtime.executable import Executable, LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.model.device import ModelDevice

MOST = 1 << 26  # bytes that a copy may unpack to, and of the device's memory
STRANGE = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    3,
    1.5,
    "",
    "x",
    "a\nb",
    [],
    {},
    [0],
    [[]],
    1 << 31,
    -(1 << 31),
    1 << 62,
    1 << 70,
]
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


def outcome(data: bytes, name: str = "damaged.tw") -> str:
    """What comes of a `.tw` file: at which stage it is refused, and by which error, or `ran`. Others escape."""
    stage = "load"
    try:
        executable = Executable.from_bytes(data, name, most=MOST)
        stage = "verify"
        for step in executable.steps:
            if isinstance(step, LaunchStep):
                verify(step.launch)
        stage = "run"
        with Loaded(executable, ModelDevice(executable.cfg, capacity=MOST)) as loaded:
            inputs = {t.name: np.ones(t.shape, t.dtype) for t in executable.inputs if t.nbytes <= MOST}
            loaded.run(inputs)
        return "ran"
    except TilewrightError as exc:
        if not str(exc) or not str(exc).isprintable():
            raise AssertionError(f"the text of {exc!r} is not one printable line") from exc
        return f"{stage}: {type(exc).__name__}"


def campaign(data: bytes, seeds: range) -> tuple[Counter[str], list[tuple[int, str]]]:
    """(counts of outcomes, seeds and tracebacks of what is no outcome)."""
    counts: Counter[str] = Counter()
    escaped = []
    for seed in seeds:
        try:
            with warnings.catch_warnings():  # of numbers that overflow in a host operator
                warnings.simplefilter("ignore")
                counts[outcome(damaged(data, seed))] += 1
        except Exception:
            escaped.append((seed, traceback.format_exc()))
    return counts, escaped


def main() -> int:
    """Run the campaign that the command line asks for; the number of copies that escaped, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    counts, escaped = campaign(args.program.read_bytes(), range(args.seed, args.seed + args.count))
    for name, count in counts.most_common():
        print(f"{count:6} {name}")
    for seed, text in escaped:
        print(f"seed {seed}:\n{text}")
    print(f"{args.count} damaged copies, {len(escaped)} escaped")
    return int(bool(escaped))


if __name__ == "__main__":
    sys.exit(main())
