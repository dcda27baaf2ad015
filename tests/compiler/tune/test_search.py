"""compiler/tune/search.py: the fastest of the candidates is found, kept, and found again."""

import json
from functools import partial

import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.layer import layer_of
from tilewright.compiler.schedule.tiling import Work, best_tile, best_tiles, largest_tile
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune import search
from tilewright.compiler.tune.search import KnownTiles, Search, layer_key
from tilewright.hw.config import PRESETS
from tilewright.sim.dram import ZYNQ_HP

TINY = PRESETS["tiny"]
WORK = Work.of(ConvShape(1, 20, 1, 1, 24), TINY)


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
    return Search(**fields).tile(layer_of(dense, TINY, 1, 20, 24), 2)


def test_the_fastest_candidate_wins_and_is_kept(timed, cache):
    found = find(candidates=4)
    tiles = [*best_tiles(WORK, TINY, 2, 4), best_tile(WORK, TINY, 2), largest_tile(WORK, TINY, 2)]
    assert timed == list(dict.fromkeys(tiles)) and found == timed[-1]
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["co"] == found.co
    assert find(candidates=4) == found and len(timed) == len(set(tiles))


def test_another_layer_is_another_entry(timed, cache):
    for layer in (layer_of(dense, TINY, 1, 20, 24), layer_of(dense, TINY, 1, 20, 24, epilogue=[("shr", 1)])):
        Search().tile(layer, 2)
        Search().tile(layer, 1)
    assert len(list(cache.iterdir())) == 4


@pytest.mark.parametrize(
    "change", [{"candidates": 2}, {"dram": ZYNQ_HP.replace(latency=9)}], ids=["candidates", "memory"]
)
def test_another_search_is_another_entry(timed, cache, change):
    find()
    find(**change)
    assert len(list(cache.iterdir())) == 2


def test_a_known_tile_is_timed_too(timed, cache):
    layer = layer_of(dense, TINY, 1, 20, 24)
    known = KnownTiles({layer_key(layer): Tile(ci=5, co=1)})
    find(known=known)
    assert Tile(ci=5, co=1) in timed
    find()
    assert len(list(cache.iterdir())) == 2


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
        for tile in (*best_tiles(WORK, TINY, 2, 1), best_tile(WORK, TINY, 2), largest_tile(WORK, TINY, 2))
    ]


def test_what_does_not_fit_after_all_takes_forever():
    tile = Tile(co=6, ci=5, vthreads=1, n=1)
    small = TINY.replace(acc_bytes=64)
    assert Search().cycles(partial(dense, small, 1, 20, 24, tile=tile), small) == float("inf")
