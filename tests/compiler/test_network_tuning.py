"""compiler/network_tuning.py: the layers of a network as tasks, and tiles that make the whole program faster."""

import numpy as np
import pytest

from tilewright.compiler.jobs import Store
from tilewright.compiler.network import compile_model, launch_cycles
from tilewright.compiler.network_tuning import Network, Whole, choose, whole_cycles
from tilewright.compiler.tune.search import known_tiles
from tilewright.compiler.tune.tasks import Measurer, evolve, measure, tile_line
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]


@pytest.fixture
def network(qdq):
    """Three layers, two of them alike."""
    model = qdq()
    x = model.quantise(model.input("x", [1, 32, 12, 12]))
    for size in (3, 3, 1):
        x = model.quantise(model.node("Conv", x, model.weights(32, 32, size, size)[0], pads=[size // 2] * 4))
    model.output(x)
    return Network.of(model.save(), CFG)


def test_layers_are_tasks_with_counts(network):
    tasks = network.tasks()
    assert [(task.text, task.count) for task in tasks] == [
        ("conv2d 3x3, 32 x 12x12 to 32 x 12x12", 2),
        ("conv2d 1x1, 32 x 12x12 to 32 x 12x12", 1),
    ]
    with pytest.raises(FileError, match="x.txt: no such file"):
        Network.of("x.txt", CFG)


@pytest.mark.circuit
def test_a_network_with_its_database_is_never_slower_and_exact(network, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tasks, path = network.tasks(), tmp_path / "tiles.db"
    with Store(path) as store:
        evolve([tile_line(task, Measurer(), 0) for task in tasks], measure, 8, store=store)
        choice = choose(network, tasks, store)
    plain, tuned = compile_model(network.path, CFG), compile_model(network.path, CFG, tiles=path)
    assert (launch_cycles(plain), launch_cycles(tuned)) == (choice.before, choice.after)
    assert choice.after <= choice.before and len(choice.tiles) <= 2
    assert known_tiles(path, CFG, network.key).tiles == choice.tiles
    x = np.random.default_rng(0).normal(0, 1, (1, 32, 12, 12)).astype(np.float32)
    inputs = {plain.inputs[0].name: x.astype(plain.inputs[0].dtype)}
    (one,), (other,) = ([*run(each, inputs)[0].values()] for each in (plain, tuned))
    assert np.array_equal(one, other)


def test_slow_tiles_are_not_used(network, tmp_path, monkeypatch):
    """A database that says that the slowest tile gained."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path, slow = tmp_path / "tiles.db", []
    with Store(path) as store:
        for task in network.tasks():
            line = tile_line(task, Measurer(), 0)
            evolve([line], measure, 4)
            worst = max((r for r in line.records if r["cycles"]), key=lambda r: r["cycles"])
            slow.append(worst)
            for k, record in enumerate(({**worst, "first": True, "cycles": 2}, {**worst, "first": False, "cycles": 1})):
                store.put(f"{task.key}{k}", {"value": record, "error": ""}, f"tile {task.key}")
        choice = choose(network, network.tasks(), store)
    assert choice.tiles == {} and choice.before == choice.after
    known = known_tiles(path, CFG)
    assert len(known.tiles) == len(slow) == 2
    tuned = launch_cycles(compile_model(network.path, CFG, tiles=path))
    assert tuned <= launch_cycles(compile_model(network.path, CFG)) == whole_cycles(Whole(network, {}))


def test_a_choice_of_tiles_is_that_of_the_contract(qdq):
    path = qdq().dense()
    first, *others = (Network.of(path, CFG, contract).key for contract in (None, "single", "double"))
    assert [first == other for other in others] == [True, False]
