"""compiler/tune/known.py: the best tile of a database's history."""

import dataclasses

import pytest

from tilewright.compiler.jobs import Store
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune.search import KnownTiles, best_tiles, known_tiles, layer_key, network_key, tile_from
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError

TINY = PRESETS["tiny"]


def trial(ci, cycles, first=False, on="timing"):
    return {"decisions": dataclasses.asdict(Tile(ci=ci)), "cycles": cycles, "first": first, "error": ""} | {
        "on": on,
        "dram": {},
        "sources": "",
    }


HISTORY = [trial(1, 100, True), trial(2, 90), trial(3, None), trial(4, 101), trial(5, 80, on="rtl"), trial(2, 95)]
HISTORY += [trial(1, 200, True, "board"), trial(6, 150, on="board")]


def test_the_largest_gain_over_the_first_trial_of_the_same_measurer_wins():
    assert [tile.ci for tile in best_tiles(HISTORY, 3)] == [6, 2]  # nothing to compare rtl's with
    assert [tile.ci for tile in best_tiles(HISTORY, 9, 1.02)] == [6, 2, 1, 4]
    assert best_tiles(HISTORY[:1], 1) == []


@pytest.fixture
def base(tmp_path):
    """(path of a database, key of the layer that it knows)"""
    path, key = tmp_path / "tiles.db", layer_key(layer_of(dense, TINY, 1, 20, 24))
    with Store(path) as store:
        for k, each in enumerate(HISTORY):
            store.put(str(k), {"value": each, "error": ""}, f"tile {key}")
    return path, key


def test_a_search_with_known_tiles(base):
    path, key = base
    known, layer = known_tiles(path, TINY), layer_of(dense, TINY, 1, 20, 24)
    assert known.tiles == {key: Tile(ci=6)} and known.tile(layer, 2) == Tile(ci=6)
    other = layer_of(dense, TINY, 1, 20, 28)
    assert known.tile(other, 2) == other.best(2)
    many = KnownTiles({key: Tile(vthreads=4)}, otherwise=known)
    assert many.tile(layer, 4).vthreads == 4 and many.tile(layer, 2) == Tile(ci=6)
    assert known.digest == known_tiles(path, TINY).digest != many.digest


def test_another_configuration_has_other_tiles(base):
    path, key = base
    assert not known_tiles(path, TINY.replace(inp_bytes=TINY.inp_bytes // 2)).tiles
    ports = layer_key(layer_of(dense, TINY.replace(axi_bits=128), 1, 20, 24))
    assert ports != key  # a field of the circuit changes cycles, whether or not it changes the fingerprint


def test_the_choice_for_a_network_goes_first(base):
    path, key = base
    name = network_key(b"digest", TINY, "double")
    with Store(path) as store:
        store.put(f"network {name}", {"tiles": {key: dataclasses.asdict(Tile(ci=2))}}, f"network {name}")
    assert known_tiles(path, TINY, name).tiles == {key: Tile(ci=2)}
    assert known_tiles(path, TINY, network_key(b"other", TINY, "double")).tiles == {key: Tile(ci=6)}


def test_files_that_are_none_are_named(base, tmp_path):
    with pytest.raises(FileError, match=r"no\.db: no such database of tiles; make it with tilewright tune"):
        known_tiles(tmp_path / "no.db", TINY)
    path, key = base
    with Store(path) as store:
        store.put("x", {"value": {"cycles": 3}}, f"tile {key}")
    with pytest.raises(FileError, match=r"tiles\.db: not a database of tiles"):
        known_tiles(path, TINY)


def test_a_tile_comes_back_from_json():
    assert tile_from({**dataclasses.asdict(Tile(ci=3)), "order": ["n", "co", "oy", "ox"]}) == Tile(ci=3)
