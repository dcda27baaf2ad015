"""runtime/proof/signature.py, with keys that ssh-keygen makes here."""

import shutil
import subprocess

import pytest

from tilewright.hw.errors import FileError, SignatureError, UnsupportedError
from tilewright.runtime.proof import signature
from tilewright.runtime.proof.signature import check_key, check_signature, sign

DATA = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """Two private keys; the public ones beside them end in .pub."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen; on Debian: apt-get install openssh-client")
    folder = tmp_path_factory.mktemp("keys")
    for name, kind in (("mine", "ed25519"), ("other", "ecdsa")):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "a b", "-f", folder / name], check=True)
    return folder


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "x.tw"
    path.write_bytes(DATA)
    return path


def refused(data, program, public, text, error: type[Exception] = SignatureError):
    with pytest.raises(error, match=text):
        check_signature(data, program, public)


NOT_ITS = r"x\.tw\.sig is not its signature by the key of .*\.pub \(.+\)"


@pytest.mark.parametrize("name, other", [("mine", "other"), ("other", "mine")])
def test_what_is_signed_is_accepted_for_its_key_and_bytes_alone(program, keys, name, other):
    refused(
        DATA, program, keys / f"{name}.pub", r"x\.tw: is not signed: there is no .*x\.tw\.sig; compile it with --sign"
    )
    assert sign(program, keys / name) == program.with_name("x.tw.sig")
    check_signature(DATA, program, keys / f"{name}.pub")
    refused(DATA, program, keys / f"{other}.pub", NOT_ITS)
    for data in (b"", DATA[:-1], DATA + b"\0", bytes([DATA[0] ^ 1]) + DATA[1:], DATA[:-1] + bytes([DATA[-1] ^ 1])):
        refused(data, program, keys / f"{name}.pub", NOT_ITS)


def test_damaged_and_foreign_signatures_are_refused(program, keys):
    for text in (b"", b"no signature", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"):
        program.with_name("x.tw.sig").write_bytes(text)
        refused(DATA, program, keys / "mine.pub", NOT_ITS)
    program.with_name("x.tw.sig").write_bytes(bytes(1 << 17))
    refused(DATA, program, keys / "mine.pub", "at most 65,536 are allowed", FileError)
    program.with_name("x.tw.sig").unlink()  # a release is signed with the same key, for another purpose
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", keys / "mine", "-n", "tilewright", program], check=True)
    refused(DATA, program, keys / "mine.pub", NOT_ITS)


def test_files_that_are_no_keys_are_refused(program, keys, tmp_path):
    sign(program, keys / "mine")
    for content in (b"", b"\xff\xff", b"*\n* ssh-ed25519 AAAA", (keys / "mine").read_bytes()):
        (tmp_path / "bad.pub").write_bytes(content)
        text = r"bad\.pub: is no public key of ssh-keygen; give the file that ends in"
        refused(DATA, program, tmp_path / "bad.pub", text)
    (tmp_path / "bad").write_text("no key")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(SignatureError, match=r"x\.tw: cannot be signed with .*bad \(.+\)"):
        sign(program, tmp_path / "bad")
    refused(DATA, program, tmp_path / "none", "none: no such file", FileError)
    with pytest.raises(FileError, match="none: no such file"):
        sign(program, tmp_path / "none")


def test_without_ssh_keygen_one_knows_what_to_install(program, keys, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for call in (lambda: check_key(keys / "mine"), lambda: check_signature(DATA, program, keys / "mine.pub")):
        with pytest.raises(UnsupportedError, match="need ssh-keygen, which is missing; install with: sudo apt-get"):
            call()


def test_a_program_that_does_not_end_is_an_error(program, keys, monkeypatch, tmp_path):
    slow = tmp_path / "ssh-keygen"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(signature, "_program", lambda: str(slow))
    monkeypatch.setattr(signature, "_SECONDS", 0.1)
    with pytest.raises(SignatureError, match="ssh-keygen did not end well"):
        sign(program, keys / "mine")
