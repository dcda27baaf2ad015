"""Who may call a server: tokens in files of their owner, and addresses that only this machine reaches."""

from __future__ import annotations

import ipaddress
import os
import secrets
from contextlib import suppress
from pathlib import Path

from ..hw.errors import ConfigError, FileError

LEAST_TOKEN = 16  # characters
_OTHERS = 0o077  # permissions of anyone but the owner


def is_loopback(host: str) -> bool:
    """True where only this machine can reach `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(path: str | Path) -> str:
    """The shared token in the file `path`.

    Raises `FileError`, also for a file that other users can read or write, and `ConfigError` for a token that is easy
    to guess.
    """
    try:
        with open(path, encoding="ascii") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if mode & _OTHERS:
                raise FileError(
                    f"{path}: other users can use this token (mode {mode:04o}, 0600 is allowed); "
                    f"make another one, in a file of mode 0600"
                )
            token = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise FileError(f"{path}: the token cannot be read ({getattr(exc, 'strerror', None) or 'not ASCII'})") from None
    if len(token) < LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{path}: a token must have at least {LEAST_TOKEN} printable characters and no space; "
            "make one with: python3 -c 'import secrets; print(secrets.token_hex(16))'"
        )
    return token


def _folders() -> list[Path]:
    """Folders of this user's tokens, the best first: the folder of the login session vanishes with it."""
    found = [Path.home() / ".cache"]
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        if path := os.environ.get(name):
            found.insert(0, Path(path))
    return [path / "tilewright" for path in found]


def keep_token(port: int) -> tuple[str, Path]:
    """A new random token for the server at `port`, and the file that holds it, for its owner only.

    Raises `FileError` where the file cannot be written.
    """
    token, path = secrets.token_hex(LEAST_TOKEN), _folders()[0] / f"{port}.token"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of a server that was killed; a new file has no readers and is no link
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(handle, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError as exc:
        raise FileError(f"{path}: the token cannot be kept there ({exc.strerror}); give --token-file") from None
    return token, path


def forget_token(path: Path) -> None:
    """Remove the file of a token that is no longer valid."""
    with suppress(OSError):
        path.unlink()


def find_token(port: int) -> str:
    """The token that a server of this machine keeps for its user; empty where there is none."""
    for folder in _folders():
        path = folder / f"{port}.token"
        with suppress(PermissionError):  # a folder of somebody else
            if path.exists():
                return read_token(path)
    return ""
