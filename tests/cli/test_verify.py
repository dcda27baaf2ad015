"""cli/verify.py."""

import json

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
    lines = done.out.splitlines()
    assert lines[0].split() == ["LOAD", "COMPUTE", "STORE"]
    assert sum(line.startswith(">") for line in lines) == 2
    assert lines[-1].startswith("missing: a token COMPUTE -> STORE, given by ") and lines[-1] in done.err
    assert not tilewright("verify", raced_tw).out


def test_a_file_without_a_certificate_is_proved(tilewright, double_tw):
    executable = Executable.load(double_tw)
    executable.launches[0].certificate = None
    executable.save(double_tw)
    assert tilewright("verify", double_tw).out.splitlines()[-2].endswith("; without a certificate")
    assert json.loads(tilewright("verify", double_tw, "--json").out)["certificates"] == 0
