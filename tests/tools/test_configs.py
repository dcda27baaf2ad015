"""tools/configs.py: a small network is exact on every legal configuration, or refused in one line."""

import json
import shutil
from contextlib import suppress
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tilewright.apps.explore.trial import on_accelerator, small_network
from tilewright.compiler.frontend import import_model
from tilewright.compiler.graph.reference import Comparison, Difference
from tilewright.compiler.network import compile_graph
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, PRESETS, Config
from tilewright.hw.errors import ConfigError, ProgramError, UnsupportedError
from tilewright.hw.fields import parameters
from tilewright.sim.dram import ZYNQ_HP, shared_bytes, unshared
from tilewright.sim.timing import predict
from tools import configs
from tools.configs import TriedConfig, attempt, candidates, choices, command, memory, random_config, random_memory

TINY = PRESETS["tiny"]
MANY = [random_config(seed) for seed in range(1000)]
SAMPLE, COUNT = 10, 200
DEPTHS = (4, 8, 16, 32, 64, 256, 1024)  # of queues
BUFFERS = ("inp_bytes", "wgt_bytes", "acc_bytes", "uop_bytes")
MODELS = Path(__file__).parents[3] / "shared" / "models"


def test_the_same_seed_draws_the_same():
    assert random_config(7) == MANY[7] != MANY[8]
    assert random_memory(7) == random_memory(7) != random_memory(8)
    assert random_memory(7).seed is None and len({random_memory(seed).latency for seed in range(50)}) > 20


def test_every_field_takes_values_over_its_range():
    for name, parameter in parameters(Config).items():
        if not parameter.high or name in (*BUFFERS, "twgt_bytes", "acc_bits"):
            continue
        values = {getattr(cfg, name) for cfg in MANY}
        if parameter.powers:
            assert min(values) == parameter.low and max(values) == parameter.high, name
        else:
            assert min(values) < 3 * parameter.low and max(values) > parameter.high / 2, name
    for name in ("uop_depth", "inp_depth", "wgt_depth", "acc_depth", "twgt_depth"):
        depths = [getattr(cfg, name) for cfg in MANY]
        assert min(depths) <= 16 and max(depths) >= 4096, name


def test_most_can_be_built_and_blocks_units_and_extensions_vary():
    built = 0
    for cfg in MANY:
        with suppress(UnsupportedError):
            check_buildable(cfg)
            built += 1
    assert 0.7 < built / len(MANY) < 0.95
    assert sum(cfg.block_in != cfg.block_out for cfg in MANY) > 100
    assert sum("ternary" in cfg.units for cfg in MANY) > 50
    for name in EXTENSIONS:
        assert 100 < sum(name in cfg.extensions for cfg in MANY) < 900, name


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
    found |= {f"plus, {n} ports": plus.replace(load_ports=n) for n in (1, 2, 4)}
    return found | {"plus, quarter": shrunk(plus, 4).replace(load_ports=2)}


def shrunk(cfg, by):
    return cfg.replace(**{name: getattr(cfg, name) // by for name in BUFFERS})


@pytest.fixture(scope="module", params=["kws", "resnet8", "vww", "ad01"])
def imported(request):
    if not MODELS.exists():
        pytest.skip("../shared/models is not there")
    return import_model(MODELS / f"{request.param}_int8.tflite")


@pytest.mark.slow
@pytest.mark.parametrize("name", variants())
def test_deeper_queues_and_larger_buffers_are_hardly_slower_for_a_network(imported, name):
    """Most queues by less than 0.7 %; kws with four ports is fastest with queues of 16, where a load comes first by
    luck.
    """
    cfg = variants()[name]
    launches = [step.launch for step in compile_graph(imported, cfg).launches]
    assert worst(launches, cfg) <= 0.02
    before = sum(predict(launch, cfg, unshared(cfg, ZYNQ_HP)).cycles for launch in launches)
    for names in (*((name,) for name in BUFFERS), BUFFERS):
        with suppress(ConfigError):  # more than an instruction can address
            larger = cfg.replace(**{name: 2 * getattr(cfg, name) for name in names})
            after = [step.launch for step in compile_graph(imported, larger).launches]
            assert sum(predict(one, larger, unshared(larger, ZYNQ_HP)).cycles for one in after) <= 1.01 * before, names


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
    monkeypatch.setattr(configs, "compare", lambda *_: Comparison(1, 4, wrong))
    with pytest.raises(ProgramError, match="tiny: QDense 'dense': 1 of 4 elements differ"):
        attempt(TINY, ZYNQ_HP, small_network(0))


@pytest.mark.circuit
def test_candidates_are_small_buildable_and_run_something():
    found = list(islice(candidates(0), 3))
    for cfg, dram, graph in found:
        check_buildable(cfg)
        assert cfg.macs_per_cycle <= configs.MOST_MULTIPLIERS and dram.total_bytes >= shared_bytes(cfg, dram)
        assert on_accelerator(graph, cfg).launches
    assert len({cfg.fingerprint for cfg, *_ in found}) == 3 and len({dram.latency for _, dram, _ in found}) == 1
    assert len({dram.latency for _, dram, _ in islice(candidates(0, True), 3)}) == 3


def row(timing, rtl, exact=True):
    return TriedConfig("one", "small", "near", 1, timing, rtl, exact)


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row(1010, 1000), row(990, 1000)], 0),
        ([row(1010, 1000), row(1021, 1000)], 1),
        ([row(1000, 1000), row(1000, 1000, exact=False)], 1),
    ],
)
def test_the_exit_status_says_whether_all_are_near_and_exact(monkeypatch, rows, status):
    left = iter(rows)
    monkeypatch.setattr(configs, "candidates", lambda *_: iter([(TINY, None, None)] * len(rows)))
    monkeypatch.setattr(configs, "tried", lambda *_: next(left))
    done = CliRunner().invoke(command, ["--count", str(len(rows)), "--json"], standalone_mode=False)
    facts = json.loads(done.output)
    assert done.return_value == status and facts["passed"] is not bool(status)
    assert [one["error"] for one in facts["rows"]] == [one.error for one in rows]


def test_the_table_shows_the_choices(monkeypatch):
    monkeypatch.setattr(configs, "tried", lambda *_: row(1010, 1000))
    done = CliRunner().invoke(command, ["--count", "1"])
    assert "+1.000" in done.output and done.output.endswith("mean error 1.000 %, worst 1.000 %\n")
    assert choices(TINY).startswith("1x4x4, w8, depths 256/256/128/128, 1 x 64 bits, queues 64")
    assert memory(ZYNQ_HP) == "40/20, 8 B, 8/8 bursts"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_model_is_near_the_circuit_off_the_presets():
    done = CliRunner().invoke(command, ["--count", "3", "--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
