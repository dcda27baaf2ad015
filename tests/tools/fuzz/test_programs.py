"""tools/fuzz/programs.py: what is made, the same for the same seed, legal, and of every kind."""

import numpy as np
import pytest

from tilewright.hw.circuit import check_buildable
from tilewright.hw.isa import Isa
from tilewright.sim.model.device import ModelDevice
from tools.fuzz.compare import Coverage, legal_runs
from tools.fuzz.programs import CONFIGS, TOGETHER, generated, wild


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_legal_programs_of_every_configuration_end_well(cfg):
    check_buildable(cfg)
    for seed in range(4):
        print(f"seed {seed}")
        program = generated(cfg, seed)
        assert program.legal
        ModelDevice(cfg).run_image(program.image.copy(), program.address, program.count)


def test_a_program_follows_from_its_seed():
    one, same, other = (generated(CONFIGS[0], seed) for seed in (3, 3, 4))
    assert np.array_equal(one.image, same.image) and one.count == same.count
    assert one.words.shape != other.words.shape or not np.array_equal(one.words, other.words)


def test_one_group_of_five_may_end_in_errors():
    groups = [[wild(seed) for seed in range(k * TOGETHER, (k + 1) * TOGETHER)] for k in range(10)]
    assert (
        all(len(set(group)) == 1 for group in groups) and [group[0] for group in groups] == ([False] * 4 + [True]) * 2
    )
    assert not generated(CONFIGS[0], 4 * TOGETHER).legal


def test_every_instruction_of_a_configuration_is_made():
    cfg, coverage = CONFIGS[1], Coverage()
    for seed in range(40):
        coverage.program(cfg, generated(cfg, seed).words)
    missing = {name for name, _, _ in legal_runs(cfg)} - set(coverage.instructions())
    assert not missing


def test_some_reach_far():
    cfg = CONFIGS[0]
    trips = [f.get("iter_in", 0) * f.get("iter_out", 0) for f in Isa(cfg).decode(generated(cfg, 7).words)]
    assert max(trips) > 10
