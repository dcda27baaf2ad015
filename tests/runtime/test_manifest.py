"""runtime/manifest.py and schema.py: files that are damaged, and kinds of values."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError, ProgramError
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.executable import Executable, HostStep, LaunchStep, Tensor
from tilewright.runtime.program import Program
from tilewright.runtime.schema import (
    SHAPE,
    Anything,
    Array,
    Flag,
    Int,
    ListOf,
    MapOf,
    OneOf,
    Optional,
    Real,
    Text,
    check_fields,
    shown,
)

TINY = PRESETS["tiny"]


def contents():
    """A program of one launch and one host step, by member."""
    program = Program(TINY, "add")
    a, y = program.buffer("a", (4, 1, 4), 32), program.buffer("y", (4, 1, 4), kind="output")
    program.load(Mem.ACC, 0, a, 0, x_size=4)
    program.alu(AluOp.ADD, [(4, 1, 1)], imm=3)
    program.store(0, y, 0, x_size=4)
    shapes = {"a": ((4, 1, 4), "int32", "input"), "y": ((4, 1, 4), "int8", "temp"), "z": ((16,), "int8", "output")}
    tensors = {name: Tensor(name, *facts) for name, facts in shapes.items()}
    steps = [
        LaunchStep("add", program.finish(), {"a": "a", "y": "y"}),
        HostStep("flat", "reshape", ["y"], ["z"], {"shape": [16]}),
    ]
    with zipfile.ZipFile(io.BytesIO(Executable(TINY, "net", tensors, steps).to_bytes())) as z:
        return {name: z.read(name) for name in z.namelist()}


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in members.items():
            z.writestr(name, data)
    return out.getvalue()


def at(path, value):
    """A change of the manifest: `value` in place of what is at `path`."""

    def change(manifest):
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return change


def refuse(members, change, text):
    """After `change` of the manifest the archive must be refused, with `text` in the message."""
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    with pytest.raises(FileError) as caught:
        Executable.from_bytes(zipped(members | {"manifest.json": json.dumps(manifest)}), "x.tw")
    assert text in str(caught.value)


STRANGE = [1.5, True, None, "4", [], {}, [1, 2], -1, 1 << 62, 1 << 2000, "\x1b[2J", ["\n"], {"a": []}]
PATHS = [
    *[("tensors", 0, key) for key in ("name", "shape", "dtype", "kind", "data")],
    *[("steps", 0, key) for key in ("kind", "name", "macs", "bind", "insn", "relocations", "buffers")],
    *[("steps", 0, "buffers", 0, key) for key in ("name", "shape", "bits", "signed", "kind", "align", "data")],
    *[("steps", 1, key) for key in ("op", "inputs", "outputs", "attrs", "constants")],
    *[(key,) for key in ("name", "config", "fingerprint", "tensors", "steps", "memory", "format", "version")],
    ("tensors", 0, "shape", 0),
    ("steps", 0, "buffers", 0, "shape", 0),
    ("steps", 1, "attrs", "shape", 0),
    ("steps", 1, "inputs", 0),
    ("config", "batch"),
    ("config", "extensions"),
]
HARMLESS = {("name",), ("memory",), ("steps", 0, "macs"), ("steps", 0, "name"), ("steps", 1, "constants")}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_fields_of_another_kind(path):
    members = contents()
    for value in STRANGE:
        manifest = json.loads(members["manifest.json"])
        at(path, value)(manifest)
        data = zipped(members | {"manifest.json": json.dumps(manifest)})
        try:
            Executable.from_bytes(data, "x.tw")
        except FileError as exc:
            assert str(exc).startswith("x.tw: ") and str(exc).isprintable() and len(str(exc)) < 700
        else:
            assert path in HARMLESS or manifest == json.loads(members["manifest.json"])


FIELDS = [
    (at(("tensors", 0, "shape"), [4.0, 1, 4]), "tensor 0: shape = [4.0, 1, 4]: must be a list of an integer from 1"),
    (at(("tensors", 0, "shape"), [1 << 31] * 8), "tensor 'a': "),
    (at(("tensors", 1, "name"), "a"), "tensor 'a' is declared twice"),
    (at(("steps", 0, "buffers", 0, "align"), 1 << 62), "buffer 0: align = 4611686018427387904: must be an integer"),
    (at(("steps", 0, "buffers", 0, "align"), 1 << 30), "buffer 'a': align = 1073741824 must be 1 to 16777216"),
    (at(("steps", 0, "buffers", 0, "align"), 0), "step 0: buffer 0: align = 0: must be an integer from 1"),
    (at(("steps", 0, "buffers", 1, "name"), "a"), "2 buffers are named 'a'"),
    (at(("steps", 0, "name"), "a\x1b[0m"), r"step 0: name = 'a\x1b[0m': must be a text of at most"),
    (at(("steps",), []), "no step writes output 'z'"),
    (at(("steps", 1, "wings"), 2), "step 1: 'wings' is unknown; known are kind, name, macs, op"),
    (at(("steps", 0, "insn"), "nowhere.npy"), "no item named 'nowhere.npy'"),
    (lambda m: m["steps"][1].pop("op"), "step 1: op is missing: must be a text"),
    (lambda m: m.clear(), "'format'"),
]


@pytest.mark.parametrize("change, text", FIELDS, ids=[text for _, text in FIELDS])
def test_fields_are_named(change, text):
    refuse(contents(), change, text)


def counting():
    """total = total + x, in the ReLU-less sums of the host: a program with state, as an archive's members."""
    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30, 1 << 30, 1 << 30], "exponents": [0, 0, -18]}
    step = HostStep("sum", "add", ["x", "total"], ["y"], attrs | {"sign": 1, "shift": 20})
    first = np.array([1, 2], np.int8)
    tensors = [Tensor("x", (2,), "int8", "input"), Tensor("y", (2,), "int8", "output")]
    tensors.append(Tensor("total", (2,), "int8", "state", first, "y"))
    data = Executable(PRESETS["tiny"], "count", {t.name: t for t in tensors}, [step]).to_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {name: z.read(name) for name in z.namelist()}


def test_state_is_kept():
    loaded = Executable.from_bytes(zipped(counting()), "x.tw")
    (state,) = loaded.states
    assert (state.name, state.next) == ("total", "y") and np.array_equal(np.asarray(state.data), [1, 2])


STATES = [
    (at(("version",), 1), "tensor 2: 'next' is unknown; known are name, shape, dtype, kind, data"),
    (at(("tensors", 2, "next"), "nothing"), "state 'total' takes the values of 'nothing', which is not declared"),
    (at(("tensors", 2, "next"), 7), "tensor 2: next = 7: must be a text"),
    (at(("tensors", 2, "data"), None), "tensor 'total': kind 'state' needs data"),
    (at(("tensors", 0, "next"), "y"), "tensor 0: 'next' is unknown"),
    (at(("tensors", 2, "kind"), "constant"), "tensor 2: 'next' is unknown"),
    (at(("steps", 0, "outputs"), ["total"]), "step 'sum' writes tensor 'total', which is state"),
    (lambda m: m["tensors"][2].pop("next"), "tensor 2: next is missing: must be a text"),
]


@pytest.mark.parametrize("change, text", STATES, ids=[text for _, text in STATES])
def test_states_that_cannot_be(change, text):
    refuse(counting(), change, text)


def test_files_of_the_first_version_are_read():
    members = contents()
    manifest = json.loads(members["manifest.json"]) | {"version": 1}
    assert Executable.from_bytes(zipped(members | {"manifest.json": json.dumps(manifest)}), "x.tw").states == []


def test_no_steps():
    members = contents()
    manifest = json.loads(members["manifest.json"])
    manifest["steps"] = manifest["tensors"] = []
    with pytest.raises(FileError, match="program 'net' has no steps: there is nothing to run"):
        Executable.from_bytes(zipped(members | {"manifest.json": json.dumps(manifest)}), "x.tw")


@pytest.mark.parametrize(
    "text, found",
    [
        (b"[" * 100_000, "x.tw: manifest.json: cannot be read as JSON .more than 64 lists"),
        (b"[]", r"its manifest is \[\]: must be an object"),
        (b'{"format": 1, "format": 2}', "key 'format' comes 2 times"),
        (b" " * (9 << 20), "has more than 8,388,608 bytes"),
    ],
)
def test_manifests_that_are_none(text, found):
    with pytest.raises(FileError, match=found):
        Executable.from_bytes(zipped(contents() | {"manifest.json": text}), "x.tw")


@pytest.mark.parametrize("dtype", ["float64", "int32", ">u8", "U3", "complex64", "bool"])
def test_instructions_of_another_dtype(dtype):
    members = contents()
    for name in [name for name in members if name.endswith(".npy")]:
        array = np.load(io.BytesIO(members[name]))
        out = io.BytesIO()
        np.save(out, array.astype(dtype))
        data = zipped(members | {name: out.getvalue()})
        try:
            Executable.from_bytes(data, "x.tw")
        except FileError as exc:
            assert "must" in str(exc)
        else:
            assert array.astype(dtype).dtype.newbyteorder("=") == array.dtype


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "folder"])
def test_what_has_no_end_is_not_read(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    path = {"pipe": tmp_path / "pipe", "/dev/zero": "/dev/zero", "folder": tmp_path}[kind]
    with pytest.raises(FileError, match="is not a regular file; give a .tw file|is a folder; give a .tw file"):
        Executable.load(path)


def test_a_limit_holds_for_the_file_and_what_it_unpacks_to(tmp_path):
    (tmp_path / "x.tw").write_bytes(zipped(contents()))
    assert Executable.load(tmp_path / "x.tw", 1 << 14).name == "net"
    with pytest.raises(FileError, match=r"x.tw: has \d,\d+ bytes; at most 100 are allowed"):
        Executable.load(tmp_path / "x.tw", 100)
    with open(tmp_path / "x.tw", "wb") as file:
        file.truncate(10 << 40)  # a file of 10 TB that takes no place on the disk
    with pytest.raises(FileError, match="x.tw: has 10,995,116,277,760 bytes; at most"):
        Executable.load(tmp_path / "x.tw")


INT8 = Array(1, ("int8",), -3, 3)
KINDS = [
    (Int(1, 9), [1, 9], [0, 10, 1.0, True, None, "1", [1], np.int64(1)], "an integer from 1 to 9"),
    (Real(0.5, 2), [1, 0.5, 2.0], [0.4, 3, True, float("nan"), float("inf"), "1", None, 1 << 2000], "0.5 to 2"),
    (Flag(), [True, False], [0, 1, None, "true"], "true or false"),
    (OneOf(("a", 1)), ["a", 1], ["b", True, 1.0, None, []], "one of a, 1"),
    (Text(), ["", "conv 1", "größer", "層"], ["\n", "\x1b[2J", "a" * 10_001, None, 3, "\ud800"], "printable"),
    (Optional(Int(0)), [None, 3], [-1, False], "or null"),
    (ListOf(Int(1), 2), [[1, 2], (3, 4)], [[1], [1, 2, 3], [0, 1], [1, 1.5], {1: 2, 3: 4}, "12", None], "2 elements"),
    (SHAPE, [[], [1, 2]], [[0], [-1, 3], [1] * 9, [1 << 40]], "a list of an integer"),
    (MapOf(Flag()), [{}, {"a": True}], [[], {"a": 1}, {"\n": True}, {3: True}], "an object"),
    (Anything(), [None, 3, {}], [], "any value"),
    (
        INT8,
        [np.zeros(3, np.int8)],
        [np.zeros(3), np.zeros((1, 3), np.int8), np.full(3, 4, np.int8), np.zeros(0, np.int8), [1, 2], None],
        "an array, int8, of 1 dimensions, values from -3 to 3",
    ),
]


@pytest.mark.parametrize("kind, good, bad, text", KINDS, ids=[str(kind) for kind, *_ in KINDS])
def test_kinds(kind, good, bad, text):
    assert all(map(kind.allows, good))
    assert not [value for value in bad if kind.allows(value)]
    assert text in str(kind)


@pytest.mark.parametrize(
    "values, text",
    [
        ({"a": 0}, "a = 0: must be an integer from 1 to 9"),
        ({}, "a is missing: must be an integer from 1 to 9"),
        ({"a": 1, "c": 2}, "'c' is unknown; known are a, b"),
        ({"a": 1, "b": "x" * 500}, "b = 'xxx"),
    ],
)
def test_kinds_are_named(values, text):
    with pytest.raises(ProgramError) as caught:
        check_fields(values, {"a": Int(1, 9), "b": Flag()}, frozenset({"b"}))
    assert str(caught.value).startswith(text) and len(str(caught.value)) < 200


def test_what_may_be_absent():
    check_fields({"a": 1}, {"a": Int(1, 9), "b": Flag()}, frozenset({"b"}))


def test_messages_stay_short():
    for value in (1 << 40000, "x" * 10000, [[1] * 1000] * 1000, {"a": {"b": "c" * 999}}, np.zeros(10000, np.int8)):
        assert len(shown(value)) < 1500
    assert shown(np.arange(3, dtype=np.int8)) == "int8 (3,), values from 0 to 2"
