"""boards/credentials.py: tokens in files, and who can read them."""

import pytest

from tilewright.boards import credentials
from tilewright.hw.errors import ConfigError, FileError

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
