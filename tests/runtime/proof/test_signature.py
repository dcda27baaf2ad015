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


@pytest.mark.parametrize("name", ["mine", "other"])
def test_what_is_signed_is_accepted_for_its_key_alone(program, keys, name):
    assert sign(program, keys / name) == program.with_name("x.tw.sig")
    for of in ("mine", "other"):
        if of == name:
            check_signature(DATA, program, keys / f"{of}.pub")
        else:
            with pytest.raises(SignatureError, match=r"x\.tw\.sig is not its signature by the key of .*\.pub \(.+\)"):
                check_signature(DATA, program, keys / f"{of}.pub")


@pytest.mark.parametrize("at", [0, 5000, len(DATA) - 1])
def test_no_byte_may_change(program, keys, at):
    sign(program, keys / "mine")
    changed = bytearray(DATA)
    changed[at] ^= 1
    for data in (bytes(changed), DATA[:at], DATA + b"\0"):
        with pytest.raises(SignatureError, match=r"x\.tw\.sig is not its signature by the key of"):
            check_signature(data, program, keys / "mine.pub")


def test_what_is_not_signed_is_refused(program, keys):
    with pytest.raises(SignatureError, match=r"x\.tw: is not signed: there is no .*x\.tw\.sig; compile it with --sign"):
        check_signature(DATA, program, keys / "mine.pub")


@pytest.mark.parametrize(
    "text", [b"", b"no signature", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"]
)
def test_damaged_signatures_are_refused(program, keys, text):
    program.with_name("x.tw.sig").write_bytes(text)
    with pytest.raises(SignatureError, match="is not its signature"):
        check_signature(DATA, program, keys / "mine.pub")
    program.with_name("x.tw.sig").write_bytes(bytes(1 << 17))
    with pytest.raises(FileError, match="at most 65,536 are allowed"):
        check_signature(DATA, program, keys / "mine.pub")


def test_a_signature_of_something_else_is_none_of_a_program(program, keys):
    """As one of a release, with the same key."""
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", keys / "mine", "-n", "tilewright", program], check=True)
    with pytest.raises(SignatureError, match="is not its signature"):
        check_signature(DATA, program, keys / "mine.pub")


def test_files_that_are_no_keys_are_refused(program, keys, tmp_path):
    sign(program, keys / "mine")
    for content in (b"", b"\xff\xff", b"*\n* ssh-ed25519 AAAA", (keys / "mine").read_bytes()):
        (tmp_path / "bad.pub").write_bytes(content)
        with pytest.raises(
            SignatureError, match=r"bad\.pub: is no public key of ssh-keygen; give the file that ends in"
        ):
            check_signature(DATA, program, tmp_path / "bad.pub")
    (tmp_path / "bad").write_text("no key")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(SignatureError, match=r"x\.tw: cannot be signed with .*bad \(.+\)"):
        sign(program, tmp_path / "bad")
    for missing in (
        lambda: sign(program, tmp_path / "none"),
        lambda: check_signature(DATA, program, tmp_path / "none"),
    ):
        with pytest.raises(FileError, match="none: no such file"):
            missing()


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
