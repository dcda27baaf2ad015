"""compiler/explore/trial.py: a small network is exact on every legal configuration, or refused in one line."""

import numpy as np
import pytest

from tilewright.compiler.explore import trial
from tilewright.compiler.explore.legal import random_config, random_memory
from tilewright.compiler.explore.trial import attempt, small_network
from tilewright.compiler.graph.compare import Comparison, Difference
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ProgramError
from tilewright.sim.dram import ZYNQ_HP

TINY = PRESETS["tiny"]
SAMPLE, COUNT = 10, 200


def tried(seed):
    """The outcome of one configuration with a network and a memory of its own."""
    cfg = random_config(seed)
    found = attempt(cfg, random_memory(seed), small_network(seed, cfg.wgt_bits), seed)
    if found.refusal:
        assert len(found.refusal) <= 300 and "\n" not in found.refusal
    return found


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_random_configuration_is_exact_or_refused(seed):
    tried(seed)


@pytest.mark.slow
def test_many_random_configurations():
    found = [tried(seed) for seed in range(SAMPLE, COUNT)]
    assert sum(not one.refusal for one in found) > 0.7 * len(found)
    assert sum(one.launches > 0 for one in found) > 0.6 * len(found)


def test_the_accelerator_runs_what_it_can():
    found = attempt(TINY, ZYNQ_HP, small_network(0))
    assert (found.launches, found.refusal) == (1, "") and found.cycles > 1000


def test_networks_repeat_and_differ():
    first, again, other = small_network(3), small_network(3), small_network(4)
    assert first.inputs == again.inputs and first.inputs != other.inputs
    kinds = [type(op).__name__ for op in first.ops]
    assert kinds == ["QConv2d", "QConv2d", "QConv2d", "Add", "Mean", "QDense"]
    narrow = [op.weight for op in small_network(3, 2).layers]
    assert {int(w) for weight in narrow for w in np.unique(weight)} == {-2, -1, 0, 1}


def test_what_the_circuit_is_not_made_for_is_refused_in_its_words():
    found = attempt(TINY.replace(store_ports=4), ZYNQ_HP, small_network(0))
    assert found.refusal == "Config.store_ports = 4: the core has 1; use that" and not found.launches


def test_a_wrong_result_is_no_outcome(monkeypatch):
    wrong = Difference("dense", "QDense", "f", (0, 0), 1.0, 2.0, 1, 4)
    monkeypatch.setattr(trial, "compare", lambda *_: Comparison(1, 4, wrong))
    with pytest.raises(ProgramError, match="tiny: QDense 'dense': 1 of 4 elements differ"):
        attempt(TINY, ZYNQ_HP, small_network(0))
