"""tools/fuzz/command.py: `make fuzz`, and shorter programs that differ, too."""

import json
import shutil

import pytest
from click.testing import CliRunner

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Op
from tilewright.sim.replay import replay_case
from tilewright.sim.spec import SpecDevice
from tools.fuzz.command import command, configurations, listing, round_of, settled, shrink, with_words
from tools.fuzz.programs import CONFIGS, Generated, generated

TINY = PRESETS["tiny"]
ISA = Isa(TINY)


@pytest.mark.circuit
def test_what_shows_the_difference_is_left():
    """It is an ALU instruction that multiplies, in this test."""
    program = next(p for p in (generated(TINY, seed) for seed in range(1, 30)) if shows(p) and p.count < 40)
    small = shrink(TINY, program, shows)
    assert shows(small) and small.count <= 4 and settled(TINY, small)
    (f,) = [f for f in ISA.decode(small.words) if f["op"] == Op.ALU]
    assert f["iter_in"] <= 1 and f["dst_out"] <= 1
    assert "FINISH" in listing(TINY, small)[-1]


def shows(program):
    return any(f["op"] == Op.ALU and f["alu_op"] == 4 for f in ISA.decode(program.words))


def test_a_program_that_races_is_not_settled():
    program = generated(TINY, 1)
    assert settled(TINY, program)
    words = program.words
    kept = [k for k, f in enumerate(ISA.decode(words)) if f["op"] != Op.FINISH]
    assert not settled(TINY, with_words(program, words[kept]))


def test_fewer_words():
    program = generated(TINY, 1)
    part = with_words(program, program.words[3:])
    assert isinstance(part, Generated) and part.count == program.count - 3
    assert (part.words == program.words[3:]).all() and part.seed == 1


@pytest.fixture
def fuzz(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(command, [*arguments, "--folder", str(tmp_path)], standalone_mode=False)

    return run


@pytest.mark.circuit
def test_no_difference(fuzz):
    done = fuzz("--seconds", "0", "--config", "tiny", "--no-circuits")
    assert done.return_value == 0, done.output
    line = next(line.split() for line in done.output.splitlines() if line.split()[:1] == ["tiny"])
    assert line[1] == "50" and line[-1] == "0"
    assert "LOADP.ACC8" in done.output and "seed 0: " in done.output


@pytest.mark.circuit
def test_json_has_coverage(fuzz):
    found = json.loads(fuzz("--seconds", "0", "--config", "tiny", "--no-circuits", "--json").output)
    (row,) = found["rows"]
    assert (row["config"], row["programs"], row["differences"], row["simulated"]) == ("tiny", 50, 0, 0)
    imm = next(s for s in found["coverage"] if (s["instruction"], s["field"]) == ("ALU.ADD", "imm"))
    assert 0 < imm["used"] <= imm["produced"] <= imm["runs"] == 32
    assert found["seed"] == 0 and not found["cases"]


@pytest.mark.slow
def test_a_difference_is_shortened_and_kept_as_a_case(fuzz, monkeypatch, tmp_path):
    real = SpecDevice.run_image

    def run_image(self, image, address, count):
        stats = real(self, image, address, count)
        image[-1] ^= stats.insns.get("GEMM", 0) > 0
        return stats

    monkeypatch.setattr(SpecDevice, "run_image", run_image)
    done = fuzz("--seconds", "0", "--config", "tiny", "--no-circuits")
    assert done.return_value == 1
    case = next(iter(sorted(tmp_path.glob("tiny_*.npz"))))
    assert f": {case}" in done.output and "shortened from" in done.output and "FINISH" in done.output
    result = replay_case(case)
    assert not result.passed and "1 of " in result.detail and result.stats.insns["GEMM"] == 1


def test_rounds_have_seeds_of_their_own_and_drawn_configurations():
    jobs = [job for number in range(2) for job in round_of([TINY], 1, number, True, 2, drawn=number == 0)]
    own = [job for job in jobs if job.cfg is TINY]
    assert len({job.first for job in own}) == 4 and all(job.count == 50 and job.circuit for job in own)
    assert own[0].first == 1 << 20
    drawn = [job for job in jobs if job.cfg is not TINY]
    assert len({job.cfg.name for job in drawn}) == len(drawn) == 4 and not any(job.circuit for job in drawn)


def test_configurations():
    assert configurations(()) == list(CONFIGS)
    assert [cfg.name for cfg in configurations(("odd", "pynq_z1"))] == ["odd", "pynq_z1"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_a_round_of_two_processes_on_circuits(fuzz):
    done = fuzz("--seconds", "0", "--config", "tiny", "--jobs", "2", "--seed", "9")
    assert done.return_value == 0, done.output
