"""`tilewright verify`: proofs, certificates, signatures, and the study of mutants."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from tilewright.cli import verify as command
from tilewright.hw.units import Queue
from tilewright.runtime.executable import Executable
from tilewright.runtime.verify import verify, without_pair
from tilewright.sim import mutation as module
from tilewright.sim.mutants import KINDS


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


@pytest.fixture
def random_alone(monkeypatch):
    """Without programs of the compiler, which take seconds to make."""
    monkeypatch.setattr(command, "compiled", lambda seed: [next(module.random_launches(seed))])


def test_mutants_of_a_file(tilewright, double_tw):
    done = tilewright("verify", double_tw, "--mutate", "20")
    assert done.status == 0, done.out
    assert "seed 0: 20 mutants of 2 programs, 0 of these refused; 0 wrong mutants accepted, 0 correct ones" in done.out
    (row,) = [line.split() for line in done.out.splitlines() if line.split()[:1] == ["all"]]
    assert row[1] == "20" and row[2] == row[3] and row[4] == row[5]


def test_json_of_programs_that_are_made(tilewright, random_alone):
    found = json.loads(tilewright("verify", "--mutate", "30", "--seed", "4", "--json").out)
    assert found["passed"] and found["seed"] == 4 and found["programs"] == 3 and not found["refused"]
    *classes, every = found["classes"]
    assert {row["class"] for row in classes} <= set(KINDS) and every["class"] == "all"
    assert sum(row["mutants"] for row in classes) == every["mutants"] == 30
    assert every["wrong"] + every["correct"] + every["neither"] == 30
    assert every["neither"] == found["harmless"] + found["unproved"]


def test_a_proof_that_accepts_all_fails(tilewright, random_alone, monkeypatch):
    monkeypatch.setattr(module, "verify", lambda launch: None)
    done = tilewright("verify", "--mutate", "10")
    assert done.status == 1 and "missed: " in done.out


def test_what_the_command_needs(refused, double_tw):
    refused(2, "give --mutate N", "verify")
    refused(2, "--seed is of --mutate N", "verify", double_tw, "--seed", "3")


@pytest.mark.slow
def test_programs_of_the_compiler_use_every_queue_and_extension(tilewright):
    found = command.compiled(0)
    said = {name.split(" on ")[1] for name, _ in found}
    assert said == {"tiny", "tiny_two", "rows", "wide", "large_rows"}
    done = tilewright("verify", "--mutate", "200", "--seed", "5")
    assert done.status == 0, done.out
