"""hw/foreign.py: archives, JSON, numbers and sizes of files that others made."""

import io
import os
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from tilewright.hw import foreign
from tilewright.hw.errors import FileError
from tilewright.hw.foreign import (
    Archive,
    default_limit,
    machine_memory,
    parse_json,
    read_json,
    read_npz,
    read_regular,
    whole_number,
)


def test_arrays_come_back(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.int32).reshape(2, 3), "b": np.array("text")}
    np.savez(tmp_path / "x.npz", **arrays)
    found = read_npz(tmp_path / "x.npz")
    assert list(found) == ["a", "b"]
    np.testing.assert_array_equal(found["a"], arrays["a"])
    assert found["a"].dtype == np.int32 and found["b"][()] == "text"


def test_files_without_arrays_are_named_in_one_line(tmp_path):
    np.savez(tmp_path / "pickled.npz", a=np.array([{}], object))
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "cut.npz", a=np.arange(100))
    data = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "damaged.npz").write_bytes(data[:300] + bytes(100) + data[400:])
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.npz").write_text("no archive")
    texts = dict.fromkeys(
        ["pickled.npz", "cut.npz", "damaged.npz", "empty.npz", "text.npz"], "not a readable .npz file ("
    )
    texts |= {"one.npy": "one array, not an .npz file", "none.npz": "no such file", ".": "is a folder; give an .npz"}
    for name, text in texts.items():
        with pytest.raises(FileError) as caught:
            read_npz(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {text}")
        assert "\n" not in str(caught.value) and ("allow_pickle" not in str(caught.value) or name == "pickled.npz")


def npy(descr="'<i4'", shape="(2,)", order="False", data=bytes(8), magic=b"\x93NUMPY\x01\x00"):
    """A .npy file whose header says what it is told."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return magic + len(header).to_bytes(2, "little") + header + data


DAMAGED = {
    "no magic": (b"\x00" * 200, "not an .npz file of arrays, it holds 'a.npy'"),
    "objects": (npy("'|O'"), "'a.npy' holds object: only numbers and text are read"),
    "records": (npy("[('a', '<i4')]"), "only numbers and text are read"),
    "nothing in each element": (npy("'|S0'", "(1 << 60,)".replace("1 << 60", str(1 << 60)), data=b""), "'a.npy' holds"),
    "10 TB": (npy(shape="(10000000000, 250)"), "'a.npy' promises 10,000,000,000,000 bytes and holds 8"),
    "an overflow": (npy(shape=f"({1 << 62}, {1 << 62})"), "promises"),
    "a negative shape": (npy(shape="(-2,)"), "dimensions are integers from 0 on"),
    "a truth value": (npy(shape="(True, 2)"), "dimensions are integers from 0 on"),
    "too little": (npy(data=bytes(7)), "promises 8 bytes and holds 7"),
    "too much": (npy(data=bytes(9)), "promises 8 bytes and holds 9"),
    "a deep header": (npy(shape="(" * 3000 + ")" * 3000), "not a readable .npz file ("),
    "a version of the future": (npy(magic=b"\x93NUMPY\x09\x00"), "'a.npy' is an array of .npy version (9, 0)"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_arrays_that_lie_are_named(tmp_path, name):
    member, text = DAMAGED[name]
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
        z.writestr("a.npy", member)
    with pytest.raises(FileError) as caught:
        read_npz(tmp_path / "x.npz")
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_other_orders_come_back_in_ours(tmp_path):
    given = np.arange(6, dtype=">i4").reshape(2, 3)
    np.savez(
        tmp_path / "x.npz", a=np.asfortranarray(given), b=np.array(3.5), c=np.zeros((0, 2)), d=np.array(["ab"], ">U3")
    )
    found = read_npz(tmp_path / "x.npz")
    np.testing.assert_array_equal(found["a"], given)
    assert found["a"].dtype == np.int32 and found["a"].flags.c_contiguous and found["a"].flags.writeable
    assert found["b"].shape == () and found["b"] == 3.5 and found["c"].shape == (0, 2)
    assert found["d"].tolist() == ["ab"] and found["d"].dtype.isnative


def test_names_that_come_twice(tmp_path):
    for names in (("a.npy", "a.npy"), ("a.npy", "a")):
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as z, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                z.writestr(name, npy())
        with pytest.raises(FileError, match="twice|comes 2 times"):
            read_npz(tmp_path / "x.npz")


def test_names_are_printable(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
        z.writestr("\x1b[2J.npy", npy())
    with pytest.raises(FileError, match="the name .* is not printable") as caught:
        read_npz(tmp_path / "x.npz")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "folder", "nul"])
def test_what_has_no_end_is_not_read(tmp_path, kind):
    path = {"pipe": tmp_path / "pipe", "/dev/zero": "/dev/zero", "folder": tmp_path, "nul": "a\0b"}[kind]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is not a regular file; give an .npz|is a folder; give an .npz|cannot be read"):
        read_npz(path)


def lying(data, name, says):
    """The archive `data`, whose directory and member header say that `name` unpacks to `says` bytes."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        size = z.getinfo(name).file_size.to_bytes(4, "little")
    return data.replace(size, says.to_bytes(4, "little"))


def test_unpacked_bytes_are_counted_not_believed(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a.npy", bytes(300 << 20))
    (tmp_path / "x.npz").write_bytes(lying(out.getvalue(), "a.npy", 1000))
    tracemalloc.start()
    with pytest.raises(FileError):
        read_npz(tmp_path / "x.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_limit_counts_all_that_is_read(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1000, np.int8))
    assert read_npz(tmp_path / "x.npz", 4000)["a"].shape == (1000,)
    with pytest.raises(FileError, match=r"x.npz: unpacks to 1,\d+ bytes; at most 900 are allowed"):
        read_npz(tmp_path / "x.npz", 900)
    with open(tmp_path / "x.npz", "rb") as file:
        archive = Archive(file, "x", 2000)
        archive.array("a.npy")
        with pytest.raises(FileError, match="x: unpacks to more than 2,000 bytes, the most allowed"):
            archive.array("a.npy")
        with pytest.raises(ValueError, match="'a.npy' has more than 10 bytes"):
            Archive(file, "x", 2000).json("a.npy", 10)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_without_a_limit_are_refused(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as z:
        z.writestr("a.npy", npy())
    with pytest.raises(FileError, match="'a.npy' is encrypted, or neither stored nor deflated"):
        read_npz(tmp_path / "x.npz")


JSON = {
    '{"a": 1, "b": {"c": 1, "c": 2}}': "key 'c' comes 2 times in one object",
    '{"a": NaN}': "NaN is no number of JSON",
    '{"a": [-1e999]}': "-1e999 is too large for a number of 64 bits",
    "[" + "[],{}," * 500_000 + "1]": "1,000,001 lists and objects; at most 1,000,000 are allowed",
    "[" * 200_000: "more than 64 lists and objects inside each other",
    "[" * 65 + "]" * 65: "more than 64 lists and objects inside each other",
    '{"a":[' * 33 + "]}" * 33: "more than 64 lists and objects inside each other",
    "1" * 1_000_000: "a number of 1,000,000 characters; at most 100 are allowed",
    "[-1." + "1" * 1_000_000 + "]": "a number of 1,000,003 characters",
    "\xff": "'utf-8' codec can't decode",
    "": "Expecting value",
}


@pytest.mark.parametrize("text", JSON, ids=lambda text: text[:20])
def test_json_that_is_none(tmp_path, text):
    data = text.encode("latin-1")
    (tmp_path / "x.json").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "x", "w") as z:
        z.writestr("m", data)
    with pytest.raises(FileError) as caught:
        read_json(tmp_path / "x.json", "a list", 1 << 22)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/x.json: cannot be read as JSON ({JSON[text]}") and said.endswith(
        "; give a list"
    )
    with open(tmp_path / "x", "rb") as file, pytest.raises(FileError, match=f"^x: m: .*{JSON[text]}"):
        Archive(file, "x").json("m", 1 << 22)


def test_json_of_any_shape_is_read():
    """As deep and as long as is allowed; brackets in texts do not count."""
    assert parse_json("[" * 64 + "]" * 64, "x") and parse_json(b"[[], {}, [1.5e300, true, null]]", "x")[2][0] == 1.5e300
    assert parse_json('{"' + "[" * 1000 + '": ' + "9" * 100 + "}", "x") == {"[" * 1000: 10**100 - 1}


def test_whole_numbers():
    assert whole_number("007") == 7 and whole_number("9" * 100) == 10**100 - 1
    assert not [
        text for text in ("", "-1", "+1", "1.0", "1_0", "\u0663", "\xb2", "9" * 101) if whole_number(text) is not None
    ]


def test_a_large_file_is_refused_before_it_takes_memory(tmp_path):
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 40_000_000_000)
    for most, text in ((None, default_limit()), (1000, 1000)):
        with pytest.raises(FileError, match=f"x: has 40,000,000,000 bytes; at most {text:,} are allowed; give a thing"):
            read_regular(tmp_path / "x", "a thing", most)


ALL_ONES = (1 << 32) - 1  # what the end record of a large archive holds in place of sizes


@pytest.mark.parametrize(
    ("nbytes", "large", "text"),
    [
        (1 << 30, False, "x.npz: its directory has 1,073,741,824 bytes; at most 2,097,152 are allowed"),
        (1 << 30, True, "x.npz: its directory has 1,073,741,824 bytes; at most 2,097,152 are allowed"),
        (40 << 30, True, "x.npz: has 42,949,673,058 bytes; at most "),
    ],
)
def test_a_directory_of_any_size_takes_no_memory(tmp_path, monkeypatch, nbytes, large, text):
    """A file with holes, which its end record calls one directory."""
    monkeypatch.setattr(foreign, "default_limit", lambda: 4 << 30)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, ALL_ONES if large else nbytes, 0, 0)
    if large:
        more = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, nbytes, 0)
        end = more + struct.pack("<4sIQI", b"PK\6\7", 0, nbytes, 1) + end
    with open(tmp_path / "x.npz", "wb") as file:
        file.seek(nbytes)
        file.write(end)
    tracemalloc.start()
    with pytest.raises(FileError, match=text):
        read_npz(tmp_path / "x.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_an_archive_has_some_thousand_members(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
        for k in range(100):
            z.writestr(f"{k}" * 30_000, b"")
    with pytest.raises(FileError, match=r"x.npz: its directory has [\d,]+ bytes"):
        read_npz(tmp_path / "x.npz")


def test_an_archive_unpacks_to_little_more_than_its_size(tmp_path):
    """1,000 times its size is refused by what the directory says, before they are unpacked."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        z.writestr("a.npy", bytes(70 << 20))
    with pytest.raises(FileError, match=r"x.npz: unpacks to 73,400,320 bytes; at most 67,108,864 are allowed for a fi"):
        read_npz(tmp_path / "x.npz")


def test_arrays_that_nobody_needs_are_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.ones((2, 3), np.int8), b=np.ones((2, 3 << 20)))
    tracemalloc.start()
    found = read_npz(tmp_path / "x.npz", needed=lambda name, shape: name == "a" and shape == (2, 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["a"].all() and found["b"].shape == (2, 3 << 20) and found["b"].dtype == np.float64 and peak < 1 << 20


def test_the_limit_follows_the_machine(monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert machine_memory() == 4096000 and default_limit() == 1024000
    monkeypatch.delattr(os, "sysconf")
    assert machine_memory() == 1 << 32


def test_texts_hold_characters(tmp_path):
    text = np.array(["ab", "c"])
    data = text.tobytes()[:-4] + (0x110000).to_bytes(4, "little")
    for order in "<>":
        found = np.frombuffer(data, "<u4").astype(f"{order}u4").tobytes()
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as z:
            z.writestr("a.npy", npy(f"'{order}U2'", "(2,)", data=found))
        with pytest.raises(FileError, match="'a.npy' holds numbers that are no characters"):
            read_npz(tmp_path / "x.npz")
