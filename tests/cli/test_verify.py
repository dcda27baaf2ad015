"""cli/verify.py."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from tilewright.hw.units import Queue
from tilewright.runtime.executable import Executable
from tilewright.runtime.verify import verify, without_pair


def test_a_proved_program(tilewright, double_tw):
    done = tilewright("verify", double_tw)
    assert done.status == 0
    proved = "no deadlock, no race, nothing read before it is written"
    assert done.out.splitlines()[-2] == f"{double_tw}: 1 launch, {proved}; 1 certificate checked"


def test_json_counts_token_pairs(tilewright, double_tw):
    (launch,) = json.loads(tilewright("verify", double_tw, "--json").out)["launches"]
    assert launch["step"] == "double"
    assert launch["token_pairs"] >= 2
    assert 0 <= launch["implied"] <= launch["token_pairs"]
    assert launch["most_in_flight"] >= 1


@pytest.fixture
def raced_tw(double_tw, tmp_path):
    """A program without one of the tokens that it needs, and without a certificate."""
    executable = Executable.load(double_tw)
    (step,) = executable.launches
    pair = next(p for p in verify(step.launch).pairs if not p.implied and p.source == Queue.COMPUTE)
    step.launch, step.certificate = without_pair(step.launch, pair), None
    executable.save(tmp_path / "raced.tw")
    return tmp_path / "raced.tw"


def test_a_race_is_drawn_on_demand(tilewright, raced_tw):
    done = tilewright("verify", raced_tw, "--explain")
    assert done.status == 8 and "error: step 'double': race on " in done.err
    *lines, error = done.err.splitlines()
    assert not done.out and lines[0].split() == ["LOAD", "COMPUTE", "STORE"]
    assert sum(line.startswith(">") for line in lines) == 2
    assert lines[-1].startswith("missing: a token COMPUTE -> STORE, given by ") and lines[-1] in error
    assert tilewright("verify", raced_tw).err.splitlines() == [error]


def test_a_file_without_a_certificate_is_proved(tilewright, double_tw):
    executable = Executable.load(double_tw)
    executable.launches[0].certificate = None
    executable.save(double_tw)
    assert tilewright("verify", double_tw).out.splitlines()[-2].endswith("; without a certificate")
    assert json.loads(tilewright("verify", double_tw, "--json").out)["certificates"] == 0


def test_a_certificate_that_does_not_hold_is_told_with_one_name(refused, double_tw):
    executable = Executable.load(double_tw)
    (step,) = executable.launches
    assert step.certificate is not None
    step.certificate = replace(step.certificate, clocks=step.certificate.clocks * 0)
    executable.save(double_tw)
    refused(8, "error: step 'double': its certificate does not hold: ", "verify", double_tw)


@pytest.fixture
def key(tmp_path):
    """An SSH key; the public one is beside it."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen; on Debian: apt-get install openssh-client")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return tmp_path / "key"


def test_a_signed_program(tilewright, double_py, tmp_path, key):
    path, public = tmp_path / "signed.tw", f"{key}.pub"
    done = tilewright("compile", f"{double_py}:double", "-o", path, "--sign", key)
    assert done.status == 0 and f", signed: {path}.sig, " in done.out.splitlines()[-1]
    assert tilewright("verify", path, "--key", public).out.splitlines()[-2].endswith(f"; signed by the key of {public}")
    assert json.loads(tilewright("verify", path, "--key", public, "--json").out)["signed_by"] == public
    again = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "x.tw", "--sign", key, "--json")
    assert json.loads(again.out)["signature"] == f"{tmp_path / 'x.tw'}.sig"
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    done = tilewright("verify", path, "--key", public)
    assert done.status == 6 and f"error: {path}: {path}.sig is not its signature by the key of {public}" in done.err


def test_a_program_without_a_signature_is_refused_where_a_key_is_given(tilewright, double_tw, key):
    done = tilewright("verify", double_tw, "--key", f"{key}.pub")
    assert done.status == 6 and f"error: {double_tw}: is not signed: there is no {double_tw}.sig" in done.err
    assert "--key is of X.tw; give both" in tilewright("verify", "--mutate", 1, "--key", key).err


def test_keys_are_looked_at_before_the_network_is_compiled(tilewright, double_py, tmp_path, key):
    done = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "x.tw", "--sign", tmp_path / "none")
    assert (
        done.status == 6
        and done.err == f"tilewright: error: {tmp_path / 'none'}: no such file; give a private key of ssh-keygen\n"
    )
    done = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "c", "--emit", "c", "--sign", key)
    assert done.status == 5 and f"--sign {key} is only for .tw programs; drop it, or --emit c" in done.err
    assert not (tmp_path / "x.tw").exists() and not (tmp_path / "c").exists()
