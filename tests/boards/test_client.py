"""boards/client.py, messages.py and credentials.py: addresses, messages, and who may call."""

from collections import Counter

import numpy as np
import pytest

from tilewright.boards import credentials, messages
from tilewright.boards.client import Address, Client
from tilewright.hw.errors import (
    AccessError,
    BoardError,
    CapacityError,
    ConfigError,
    DeadlockError,
    FileError,
    InputError,
)
from tilewright.runtime.device import Stats
from tilewright.runtime.loader import StepReport


@pytest.mark.parametrize(
    "host, target",
    [("board", "board:50177"), ("board:7", "board:7"), ("[::1]", "[::1]:50177"), ("[::1]:7", "[::1]:7")],
)
def test_the_port_has_a_default(host, target):
    assert Address(host).target == target


@pytest.mark.parametrize("host", ["board", "192.0.2.1:7", "[2001:db8::1]"])
def test_a_token_does_not_cross_a_network_in_the_clear(host):
    with pytest.raises(ConfigError, match="sending a token to another machine needs TLS; .*ssh -L 50177"):
        Address(host, "0123456789abcdef")
    Address(host, "0123456789abcdef", b"certificate")
    Address("localhost", "0123456789abcdef")
    Address("[::1]:7", "0123456789abcdef")


def test_nobody_answers():
    with pytest.raises(BoardError, match="localhost:1: no answer; check that `tilewright serve` runs there"):
        Client(Address("localhost:1", seconds=5)).info()


def test_tensors_of_every_type_and_shape():
    rng = np.random.default_rng(0)
    given = {
        "a": rng.integers(-128, 128, (2, 3), np.int8),
        "b": rng.integers(0, 256, (1, 2, 3, 4), np.uint8),
        "c": rng.integers(-(1 << 31), 1 << 31, (5,), np.int64).astype(np.int32),
        "d": rng.standard_normal((2, 2)).astype(np.float32),
        "e": np.float32(3).reshape(()),
        "f": np.zeros((0, 4), np.int8),
        "g": rng.integers(0, 9, (4, 6), np.int32)[:, ::2],
    }
    reply = messages.make("RunReply", outputs=messages.tensors(given))
    found = messages.arrays(messages.parse("RunReply", reply.SerializeToString()).outputs)
    assert list(found) == list(given)
    for name, array in given.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


@pytest.mark.parametrize("cycles", [None, 0, 1 << 33])
def test_reports(cycles):
    stats = Stats(Counter({"GEMM": 3}), 5, 80, Counter({"INP": 64}), Counter({"OUT": 4}), cycles, Counter({"A": 0}))
    given = [StepReport("conv", "device", 70, stats, 0.25), StepReport("pool", "host", 0, Stats(), 1.5)]
    reply = messages.make("RunReply", steps=messages.steps(given)).SerializeToString()
    assert messages.reports(messages.parse("RunReply", reply).steps) == given


@pytest.mark.parametrize(
    "error", [CapacityError("full"), AccessError("there", 7), AccessError("there"), DeadlockError("stuck", 0)]
)
def test_errors_keep_their_class_text_and_instruction(error):
    with pytest.raises(type(error)) as caught:
        messages.raise_failure([messages.failure(error)])
    assert str(caught.value) == str(error) and getattr(caught.value, "index", 0) == getattr(error, "index", 0)


@pytest.mark.parametrize("kind", ["SystemExit", "annotations", "__builtins__", "NoSuch"])
def test_a_server_cannot_name_other_classes(kind):
    with pytest.raises(BoardError, match=f"{kind}: text"):
        messages.raise_failure([messages.make("Failure", kind=kind, text="text")])


def test_what_is_no_message():
    with pytest.raises(InputError, match="3 bytes are not a Info message"):
        messages.parse("Info", b"\xff\xff\xff")


TOKEN = "0123456789abcdef-secret"


@pytest.mark.parametrize("host, local", [("localhost", True), ("127.0.0.9", True), ("::1", True), ("10.0.0.1", False)])
def test_loopback(host, local):
    assert credentials.is_loopback(host) == local


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.touch(0o600)
    return path


def test_tokens_come_from_a_file(file):
    file.write_text(f"{TOKEN}\n")
    assert credentials.read_token(file) == TOKEN
    for text in ("short", "twenty characters, with blanks"):
        file.write_text(text)
        with pytest.raises(
            ConfigError, match="a token must have at least 16 printable characters and no space; make one"
        ):
            credentials.read_token(file)
    file.write_bytes(b"\xff" * 20)
    for path in (file, file.parent / "none"):
        with pytest.raises(FileError, match="the token cannot be read"):
            credentials.read_token(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o777])
def test_a_token_that_others_can_read_is_none(file, mode):
    file.write_text(TOKEN)
    file.chmod(mode)
    with pytest.raises(FileError, match=rf"token: other users can use this token \(mode 0{mode:o}, 0600 is allowed\)"):
        credentials.read_token(file)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "variables, folder",
    [
        ({}, "home/.cache"),
        ({"XDG_CACHE_HOME": "cache"}, "cache"),
        ({"XDG_CACHE_HOME": "cache", "XDG_RUNTIME_DIR": "run"}, "run"),
    ],
)
def test_a_servers_own_token_is_found_by_its_user(home, monkeypatch, variables, folder):
    for name, value in variables.items():
        monkeypatch.setenv(name, str(home / value))
    assert credentials.find_token(7) == ""
    token, path = credentials.keep_token(7)
    assert path == home / folder / "tilewright" / "7.token" and len(token) == 32
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert credentials.find_token(7) == token and credentials.find_token(8) == ""
    credentials.forget_token(path)
    assert credentials.find_token(7) == ""


def test_what_a_killed_server_left_is_replaced(home):
    """Also where it is a link: nothing is written to where it points."""
    (first, path), other = credentials.keep_token(7), home / "other"
    assert credentials.keep_token(7)[0] != first
    path.unlink()
    path.symlink_to(other)
    token, _ = credentials.keep_token(7)
    assert credentials.find_token(7) == token and not path.is_symlink() and not other.exists()


def test_a_token_that_cannot_be_kept(home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "file"))
    with pytest.raises(FileError, match=r"7.token: the token cannot be kept there \(.*\); give --token-file"):
        credentials.keep_token(7)
