"""Tiles by timing with their cache, and tiles that trials found."""

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest

from tilewright.compiler import network
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.jobs import Store
from tilewright.compiler.network_tuning import Network
from tilewright.compiler.schedule import tiling
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.tiling import Work, best_tile, largest_tile
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune import search
from tilewright.compiler.tune.search import (
    KnownTiles,
    Search,
    best_tiles,
    known_tiles,
    layer_key,
    network_key,
)
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError
from tilewright.sim.dram import ZYNQ_HP

TINY = PRESETS["tiny"]
WORK, LAYER = Work.of(ConvShape(1, 20, 1, 1, 24), TINY), layer_of(dense, TINY, 1, 20, 24)
KNOWN = Tile(ci=5, co=1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tilewright" / "tiles"


@pytest.fixture
def timed(monkeypatch):
    """Counts of timed programs: `Search.cycles` is an invented function of the tile."""
    seen = []

    def cycles(self, schedule, cfg):
        (tile,) = schedule.args
        seen.append(tile)
        return 100 - len(seen)

    monkeypatch.setattr(Search, "cycles", cycles)
    return seen


def find(**fields):
    return Search(**fields).tile(LAYER, 2)


def test_the_fastest_candidate_wins_and_is_kept(timed, cache):
    found = find(candidates=4)
    tiles = [*tiling.best_tiles(WORK, TINY, 2, 4), best_tile(WORK, TINY, 2), largest_tile(WORK, TINY, 2)]
    assert timed == list(dict.fromkeys(tiles)) and found == timed[-1]
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["co"] == found.co
    assert find(candidates=4) == found and len(timed) == len(set(tiles))


@pytest.mark.parametrize(
    "how, layer, threads",
    [
        (Search(candidates=2), LAYER, 2),
        (Search(dram=ZYNQ_HP.replace(latency=9)), LAYER, 2),
        (Search(known=KnownTiles({layer_key(LAYER): KNOWN})), LAYER, 2),
        (Search(), layer_of(dense, TINY, 1, 20, 24, epilogue=[("shr", 1)]), 2),
        (Search(), LAYER, 1),
    ],
    ids=["candidates", "memory", "known", "layer", "threads"],
)
def test_another_search_is_another_entry(timed, cache, how, layer, threads):
    find()
    how.tile(layer, threads)
    assert len(list(cache.iterdir())) == 2 and (KNOWN in timed) == bool(how.known.tiles)


def test_other_sources_are_another_entry(timed, cache, monkeypatch):
    find()
    monkeypatch.setattr(search, "sources", lambda: "newer")
    find()
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"order": 5}', '{"order": ["n"]}', '{"order": [], "x": 1}'])
def test_a_damaged_entry_is_made_again(timed, cache, text):
    found = find()
    (file,) = cache.iterdir()
    file.write_text(text)
    timed.clear()
    find()
    assert timed and Tile(**{**(values := json.loads(file.read_text())), "order": tuple(values["order"])})
    assert found.checked()


def test_a_cache_that_cannot_be_written_does_no_harm(timed, cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert find().checked() and not cache.exists()


def test_old_entries_go(timed, cache, monkeypatch):
    monkeypatch.setattr(search, "_MOST_FILES", 2)
    for count in (1, 2, 3):
        find(candidates=count)
    assert len(list(cache.iterdir())) == 2


def test_schedules_take_the_tile_of_the_search():
    sch = dense(TINY, 1, 20, 24, search=Search(candidates=1))
    assert sch.mod.script() in [
        dense(TINY, 1, 20, 24, tile=tile).mod.script()
        for tile in (*tiling.best_tiles(WORK, TINY, 2, 1), best_tile(WORK, TINY, 2), largest_tile(WORK, TINY, 2))
    ]


def test_what_does_not_fit_after_all_takes_forever():
    tile = Tile(co=6, ci=5, vthreads=1, n=1)
    small = TINY.replace(acc_bytes=64)
    assert Search().cycles(partial(dense, small, 1, 20, 24, tile=tile), small) == float("inf")


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
    path, key = tmp_path / "tiles.db", layer_key(LAYER)
    with Store(path) as store:
        for k, each in enumerate(HISTORY):
            store.put(str(k), {"value": each, "error": ""}, f"tile {key}")
    return path, key


def test_a_search_with_known_tiles(base):
    path, key = base
    known = known_tiles(path, TINY)
    assert known.tiles == {key: Tile(ci=6)} and known.tile(LAYER, 2) == Tile(ci=6)
    other = layer_of(dense, TINY, 1, 20, 28)
    assert known.tile(other, 2) == other.best(2)
    many = KnownTiles({key: Tile(vthreads=4)}, otherwise=known)
    assert many.tile(LAYER, 4).vthreads == 4 and many.tile(LAYER, 2) == Tile(ci=6)
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


def test_a_resident_program_has_the_tiles_of_its_network(monkeypatch):
    keys, model = [], Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"

    def stop(_path, _cfg, key):
        keys.append(key)
        raise FileError("enough")

    monkeypatch.setattr(network, "known_tiles", stop)
    for resident in (False, True):
        with pytest.raises(FileError, match="enough"):
            network.compile_model(model, TINY, tiles="tiles.db", resident=resident)
    assert keys == [Network.of(model, TINY).key] * 2


def test_files_that_are_none_are_named(base, tmp_path):
    with pytest.raises(FileError, match=r"no\.db: no such database of tiles; make it with tilewright tune"):
        known_tiles(tmp_path / "no.db", TINY)
    path, key = base
    with Store(path) as store:
        store.put("x", {"value": {"cycles": 3}}, f"tile {key}")
    with pytest.raises(FileError, match=r"tiles\.db: not a database of tiles"):
        known_tiles(path, TINY)
