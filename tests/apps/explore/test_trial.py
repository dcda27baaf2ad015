"""apps/explore/trial.py: a small network is exact on every legal configuration, or refused in one line."""

from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from tilewright.apps.explore import trial
from tilewright.apps.explore.trial import attempt, on_accelerator, small_network
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph.compare import Comparison, Difference
from tilewright.compiler.network import compile_graph
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ConfigError, ProgramError, UnsupportedError
from tilewright.sim.dram import ZYNQ_HP, unshared
from tilewright.sim.timing import predict
from tools.configs import random_config, random_memory

TINY = PRESETS["tiny"]
SAMPLE, COUNT = 10, 200
DEPTHS = (4, 8, 16, 32, 64, 256, 1024)  # of queues
BUFFERS = ("inp_bytes", "wgt_bytes", "acc_bytes", "uop_bytes")
MODELS = Path(__file__).parents[4] / "shared" / "models"


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


def worst(launches, cfg, depths=DEPTHS):
    """By how much the cycles of `launches` with some depth of the queues exceed those with a smaller one, at most."""
    dram, every = unshared(cfg, ZYNQ_HP), [cfg.replace(queue_depth=depth) for depth in depths]
    cycles = [sum(predict(launch, one, dram).cycles for launch in launches) for one in every]
    return max(now / best for now, best in zip(cycles, accumulate(cycles, min))) - 1


def slower(seed):
    """`worst` of a random configuration's network; None where nothing runs on the accelerator."""
    cfg = random_config(seed)
    launches = [step.launch for step in on_accelerator(small_network(seed, cfg.wgt_bits), cfg).launches]
    return worst(launches, cfg) if launches else None


def test_fetching_far_ahead_over_a_narrow_port_delays_no_loads():
    """Their bursts took turns, and queues of 64 cost 8 %, of 1024 11 %."""
    assert random_config(80).axi_bits == 32 and (slower(80) or 0) < 0.01


@pytest.mark.slow
def test_deeper_queues_are_hardly_slower_on_random_configurations():
    """Which load comes first depends on the depth, and a small program may be the slower for it: few are by much."""
    found = []
    for seed in range(COUNT):
        with suppress(UnsupportedError):
            found.append(slower(seed))
    found = sorted(more for more in found if more is not None)
    assert len(found) > 120 and found[-1] < 0.17 and found[-10] < 0.04
    assert sum(more > 0.01 for more in found) < 0.36 * len(found) and sum(found) < 0.012 * len(found)


def variants():
    """Configurations of several kinds, by name: bandwidth, memory, extensions."""
    pynq, plus = PRESETS["pynq_z1"], PRESETS["pynq_z1_plus"]
    found = {"pynq_z1": pynq, "lean": PRESETS["pynq_z1_lean"], "quarter": shrunk(pynq, 4), "eighth": shrunk(pynq, 8)}
    found |= {f"{bits} bits": pynq.replace(axi_bits=bits) for bits in (32, 128)}
    return (
        found
        | {f"plus, {n} ports": plus.replace(load_ports=n) for n in (1, 2, 4)}
        | {"plus, quarter": shrunk(plus, 4).replace(load_ports=2)}
    )


def shrunk(cfg, by):
    return cfg.replace(**{name: getattr(cfg, name) // by for name in BUFFERS})


@pytest.fixture(scope="module", params=["kws", "resnet8", "vww", "ad01"])
def imported(request):
    if not MODELS.exists():
        pytest.skip("../shared/models is not there")
    return import_model(MODELS / f"{request.param}_int8.tflite")


@pytest.mark.slow
@pytest.mark.parametrize("name", variants())
def test_deeper_queues_are_hardly_slower_for_a_network(imported, name):
    """Most by less than 0.7 %; kws with four ports is fastest with queues of 16, where a load comes first by luck."""
    cfg = variants()[name]
    launches = [step.launch for step in compile_graph(imported, cfg).launches]
    assert worst(launches, cfg) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", variants())
def test_larger_buffers_are_never_slower_for_a_network(imported, name):
    cfg = variants()[name]
    before = cycles_of(imported, cfg)
    for names in (*((name,) for name in BUFFERS), BUFFERS):
        with suppress(ConfigError):  # more than an instruction can address
            larger = cfg.replace(**{name: 2 * getattr(cfg, name) for name in names})
            assert cycles_of(imported, larger) <= 1.01 * before, names


def cycles_of(graph, cfg):
    """Of a network compiled for `cfg`."""
    launches = [step.launch for step in compile_graph(graph, cfg).launches]
    return sum(predict(launch, cfg, unshared(cfg, ZYNQ_HP)).cycles for launch in launches)


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
