"""Signatures of program files, made and checked by OpenSSH's `ssh-keygen`.

The signature of X.tw is the file X.tw.sig, so that equal programs stay equal files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...hw.errors import SignatureError, UnsupportedError, one_line
from ...hw.foreign import read_regular
from ..files import atomic_write

NAMESPACE = "tilewright-program"  # signatures for other purposes, such as releases, are refused
SUFFIX = ".sig"
_MOST = 1 << 16  # bytes of a key or a signature
_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/=]+")  # the kind of a public key, and the key
_SECONDS = 60


def check_key(key: str | Path) -> None:
    """Raise `FileError` where the file `key` cannot be read, `UnsupportedError` without ssh-keygen."""
    _program()
    read_regular(key, "a private key of ssh-keygen", _MOST)


def sign(path: str | Path, key: str | Path) -> Path:
    """Sign the file `path` with the SSH private key in the file `key`; returns the signature's path.

    Raises `SignatureError` where ssh-keygen does not, `FileError` for files that cannot be read or written, and
    `UnsupportedError` where it is not installed.
    """
    check_key(key)
    target = Path(f"{path}{SUFFIX}")
    done = _run(["-Y", "sign", "-f", str(key), "-n", NAMESPACE], read_regular(path, "a program"))
    if done.returncode or not done.stdout:
        raise SignatureError(f"{path}: cannot be signed with {key} ({_said(done)})")
    with atomic_write(target) as temporary:
        temporary.write_bytes(done.stdout)
    return target


def check_signature(data: bytes, path: str | Path, public: str | Path) -> None:
    """Raise `SignatureError` unless the file `path`, whose contents are `data`, is signed with the key of `public`.

    `public` is the file of a public SSH key, as ssh-keygen writes it. Also raises as `sign` does.
    """
    _program()
    signature = Path(f"{path}{SUFFIX}")
    key = _KEY.match(read_regular(public, "a public key of ssh-keygen", _MOST).decode(errors="replace"))
    if key is None:
        raise SignatureError(f"{public}: is no public key of ssh-keygen; give the file that ends in .pub")
    if not signature.exists():
        raise SignatureError(f"{path}: is not signed: there is no {signature}; compile it with --sign")
    with tempfile.TemporaryDirectory() as folder:
        allowed, copy = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text(f"signer {key[0]}\n")
        copy.write_bytes(read_regular(signature, "a signature", _MOST))
        options = ["-f", str(allowed), "-I", "signer", "-n", NAMESPACE, "-s", str(copy)]
        done = _run(["-Y", "verify", *options], data)
    if done.returncode:
        raise SignatureError(f"{path}: {signature} is not its signature by the key of {public} ({_said(done)})")


def _program() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        text = "signatures need ssh-keygen, which is missing; install with: sudo apt-get install openssh-client"
        raise UnsupportedError(text)
    return found


def _run(options: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run([_program(), *options], input=data, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError) as exc:
        raise SignatureError(f"ssh-keygen did not end well ({one_line(exc)})") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The output of ssh-keygen as one line."""
    text = b" ".join(filter(None, (done.stderr.strip(), done.stdout.strip())))
    return one_line(ValueError(text.decode(errors="replace")))
