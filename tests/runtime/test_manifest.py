"""runtime/manifest.py and schema.py: files that are damaged, and kinds of values."""

import io
import os

import numpy as np
import pytest

from tests.runtime.launches import members, rewritten, zipped
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, FileError, ProgramError
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
from tilewright.runtime.verify import verify

TINY = PRESETS["tiny"]


def network():
    """A launch and a host step."""
    program = Program(TINY, "add")
    a, y = program.buffer("a", (4, 1, 4), 32), program.buffer("y", (4, 1, 4), kind="output")
    program.load(Mem.ACC, 0, a, 0, x_size=4)
    program.alu(AluOp.ADD, [(4, 1, 1)], imm=3)
    program.store(0, y, 0, x_size=4)
    shapes = {"a": ((4, 1, 4), "int32", "input"), "y": ((4, 1, 4), "int8", "temp"), "z": ((16,), "int8", "output")}
    tensors = {name: Tensor(name, *facts) for name, facts in shapes.items()}
    launch = LaunchStep("add", program.finish(), {"a": "a", "y": "y"})
    return Executable(TINY, "net", tensors, [launch, HostStep("flat", "reshape", ["y"], ["z"], {"shape": [16]})])


def certified():
    """The same with a certificate."""
    program = network()
    program.launches[0].certificate = verify(program.launches[0].launch, memory=True).certificate
    return program


def counting():
    """total = total + x on the host: a program with state."""
    attrs = {"zero_points": [0] * 3, "multipliers": [1 << 30, 1 << 30, 1 << 30], "exponents": [0, 0, -18]}
    step = HostStep("sum", "add", ["x", "total"], ["y"], attrs | {"sign": 1, "shift": 20})
    tensors = [Tensor("x", (2,), "int8", "input"), Tensor("y", (2,), "int8", "output")]
    tensors.append(Tensor("total", (2,), "int8", "state", np.array([1, 2], np.int8), "y"))
    return Executable(TINY, "count", {t.name: t for t in tensors}, [step])


NET, CERTIFIED, COUNT = (made().to_bytes() for made in (network, certified, counting))


def at(path, value):
    """A change of the manifest: `value` in place of what is at `path`."""

    def change(manifest):
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return change


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
    for value in STRANGE:
        try:
            Executable.from_bytes(rewritten(NET, at(path, value)), "x.tw")
        except FileError as exc:
            assert str(exc).startswith("x.tw: ") and str(exc).isprintable() and len(str(exc)) < 700
        else:
            assert path in HARMLESS or rewritten(NET, at(path, value)) == rewritten(NET, lambda m: None)


ROW, PATCHES = ("steps", 0, "buffers", 0), ("steps", 0, "patches")


@pytest.mark.parametrize(
    "program, change, text",
    [
        ("net", at(("tensors", 0, "shape"), [4.0, 1, 4]), "tensor 0: shape = [4.0, 1, 4]: must be a list of an int"),
        ("net", at(("tensors", 0, "shape"), [1 << 31] * 8), "tensor 'a': "),
        ("net", at(("tensors", 1, "name"), "a"), "tensor 'a' is declared twice"),
        ("net", at((*ROW, "align"), 1 << 62), "buffer 0: align = 4611686018427387904: must be an integer"),
        ("net", at((*ROW, "align"), 1 << 30), "buffer 'a': align = 1073741824: must be an integer from 1 to 16777216"),
        ("net", at((*ROW, "align"), 0), "step 0: buffer 0: align = 0: must be an integer from 1"),
        ("net", at(("steps", 0, "buffers", 1, "name"), "a"), "2 buffers are named 'a'"),
        ("net", at(("steps", 0, "name"), "a\x1b[0m"), r"step 0: name = 'a\x1b[0m': must be a text of at most"),
        ("net", at(("steps",), []), "no step writes output 'z'"),
        ("net", lambda m: m.update(steps=[], tensors=[]), "program 'net' has no steps: there is nothing to run"),
        ("net", at(("steps", 1, "wings"), 2), "step 1: 'wings' is unknown; known are kind, name, macs, op"),
        ("net", at(("steps", 0, "insn"), "nowhere.npy"), "no item named 'nowhere.npy'"),
        ("net", lambda m: m["steps"][1].pop("op"), "step 1: op is missing: must be a text"),
        ("net", lambda m: m.clear(), "'format'"),
        ("net", lambda m: m.pop("steps"), "not a tilewright program, or a damaged one (manifest: steps is missing"),
        ("net", at(("version",), 9), "version 9 is not supported; must be 'tilewright program' version 1, 2, 3 or 4"),
        ("certified", at(("version",), 2), "step 0: 'certificate' is unknown"),
        ("net", at(("fingerprint",), "0" * 16), f"fingerprint {'0' * 16} does not match its configuration"),
        ("count", at(("version",), 1), "tensor 2: 'next' is unknown; known are name, shape, dtype, kind, data"),
        ("count", at(("tensors", 2, "next"), "nothing"), "state 'total' takes the values of 'nothing', which is not"),
        ("count", at(("tensors", 2, "next"), 7), "tensor 2: next = 7: must be a text"),
        ("count", at(("tensors", 2, "data"), None), "tensor 'total': kind 'state' needs data"),
        ("count", at(("tensors", 0, "next"), "y"), "tensor 0: 'next' is unknown"),
        ("count", at(("tensors", 2, "kind"), "constant"), "tensor 2: 'next' is unknown"),
        ("count", at(("steps", 0, "outputs"), ["total"]), "step 'sum' writes tensor 'total', which is state"),
        ("count", lambda m: m["tensors"][2].pop("next"), "tensor 2: next is missing: must be a text"),
        ("cache", at((*PATCHES, "wings"), 1), "step 0: patches: 'wings' is unknown; known are limits, columns"),
        ("cache", at((*PATCHES, "limits", "position"), 0), "step 0: patches: limits = {'position': 0}: must be an o"),
        ("cache", at((*PATCHES, "limits", "position"), 1 << 30), "symbol 'position': limit = 1073741824: must be"),
        ("cache", lambda m: at((*PATCHES, "columns"), m["steps"][0]["insn"])(m), "patches: columns must be int64"),
        ("cache", lambda m: m["steps"][0].pop("patches"), "has the symbols none; those with a tensor are position"),
        ("cache", at(PATCHES, None), "step 0: patches = None: must be an object"),
        ("cache", at(("steps", 0, "symbols"), {"position": 3}), "step 0: symbols = {'position': 3}: must be an object"),
        ("cache", at(("steps", 0, "when"), {"tensor": "position", "first": 0}), "step 0: when: end is missing: must"),
        ("cache", at(("steps", 0, "when"), {"tensor": "position", "first": -1, "end": 2}),
         "step 0: when: first = -1: must be"),
    ],
)  # fmt: skip
def test_fields_are_named(cache, program, change, text):
    data = {"net": NET, "certified": CERTIFIED, "count": COUNT}.get(program) or Executable.from_launch(
        cache().launch
    ).to_bytes()
    with pytest.raises(FileError) as caught:
        Executable.from_bytes(rewritten(data, change), "x.tw")
    assert text in str(caught.value)


def test_an_address_beyond_its_buffer_for_some_position(cache):
    data = Executable.from_launch(cache().launch).to_bytes()
    with pytest.raises(AccessError, match=r"x\.tw: .* ends at byte 128 for some position of buffer 'rows'"):
        Executable.from_bytes(rewritten(data, at((*PATCHES, "limits", "position"), 32)), "x.tw")


def test_files_of_older_versions_are_read():
    (state,) = Executable.from_bytes(COUNT, "x.tw").states
    assert (state.name, state.next) == ("total", "y") and np.array_equal(np.asarray(state.data), [1, 2])
    for version in (1, 2):
        found = Executable.from_bytes(rewritten(NET, at(("version",), version)), "x.tw")
        assert found.states == [] and found.launches[0].certificate is None


@pytest.mark.parametrize(
    "member, content, text",
    [
        ("manifest.json", b"[" * 100_000, "x.tw: manifest.json: cannot be read as JSON .more than 64 lists"),
        ("manifest.json", b"[]", r"its manifest is \[\]: must be an object"),
        ("manifest.json", b'{"format": 1, "format": 2}', "key 'format' comes 2 times"),
        ("manifest.json", b" " * (9 << 20), "has more than 8,388,608 bytes"),
        ("data/0.npy", b"\x80\x04N.", "x.tw: not a tilewright program, or a damaged one"),  # a pickle
    ],
)
def test_members_that_are_none(member, content, text):
    with pytest.raises(FileError, match=text):
        Executable.from_bytes(zipped(members(NET) | {member: content}), "x.tw")


@pytest.mark.parametrize("dtype", ["float64", "int32", ">u8", "U3", "complex64", "bool"])
def test_instructions_of_another_dtype(dtype):
    files = members(NET)
    for name in [name for name in files if name.endswith(".npy")]:
        array = np.load(io.BytesIO(files[name]))
        out = io.BytesIO()
        np.save(out, array.astype(dtype))
        data = zipped(files | {name: out.getvalue()})
        try:
            Executable.from_bytes(data, "x.tw")
        except FileError as exc:
            assert "must" in str(exc)
        else:
            assert array.astype(dtype).dtype.newbyteorder("=") == array.dtype


def test_what_is_no_regular_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path, tmp_path / "none"):
        with pytest.raises(FileError, match="is not a regular file; give a .tw file|is a folder; give a|no such file"):
            Executable.load(path)


def test_a_limit_holds_for_the_file_and_what_it_unpacks_to(tmp_path):
    (tmp_path / "x.tw").write_bytes(NET)
    assert Executable.load(tmp_path / "x.tw", 1 << 14).name == "net"
    with pytest.raises(FileError, match=r"x: unpacks to [\d,]+ bytes; at most 1,000 are allowed"):
        Executable.from_bytes(NET, "x", most=1000)
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
    check_fields({"a": 1}, {"a": Int(1, 9), "b": Flag()}, frozenset({"b"}))


def test_messages_stay_short():
    for value in (1 << 40000, "x" * 10000, [[1] * 1000] * 1000, {"a": {"b": "c" * 999}}, np.zeros(10000, np.int8)):
        assert len(shown(value)) < 1500
    assert shown(np.arange(3, dtype=np.int8)) == "int8 (3,), values from 0 to 2"
