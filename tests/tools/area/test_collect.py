"""tools/area/collect.py: what is stored, what is counted again, what the file holds. Synthesis is replaced."""

import json

import pytest
from click.testing import CliRunner

from tilewright.boards import blocks
from tilewright.boards.synthesis import Resources, Synthesis
from tilewright.compiler.jobs import Store
from tools import area as collect
from tools.area import points


def synthesis(cfg):
    lut, ff = 100 * cfg.block_in, 50 * cfg.block_in
    part = Resources(lut // 2, ff // 2)
    modules = {"engine": Resources(lut - 10, ff - 5, 2.0, 3), "engine.load": part, "engine.load.mover.writer": part}
    return Synthesis(cfg.name, Resources(lut, ff, 2.0, 3), modules)


@pytest.fixture
def runs(monkeypatch):
    """The names of the configurations that were synthesised."""
    seen = []

    def replaced(cfg, known):
        seen.append(cfg.name)
        return synthesis(cfg)

    monkeypatch.setattr(blocks, "synthesise_blocks", replaced)
    return seen


def test_own_figures_add_up_to_the_total():
    found = collect.own(synthesis(points()[0].config))
    assert found == {"": [10, 5], "engine": [190, 95], "engine.load": [0, 0], "engine.load.mover.writer": [200, 100]}


def test_blocks_belong_to_a_version_of_yosys(tmp_path, monkeypatch):
    with Store(tmp_path / "x.db") as store:
        collect.Blocks(store).put("a", {"LUT6": 1})
        assert collect.Blocks(store).get("a") == {"LUT6": 1}
        monkeypatch.setattr(collect, "version", lambda name: "0.1")
        assert collect.Blocks(store).get("a") is None


def test_a_second_run_counts_nothing_again(runs, tmp_path):
    arguments = ["--database", str(tmp_path / "x.db"), "--count", "4", "-o", str(tmp_path / "area.json")]
    done = CliRunner().invoke(collect.command, arguments, standalone_mode=False)
    assert done.exception is None and "held0, held out: LUT " in done.output
    assert runs == [point.name for point in points()[:4]]
    first = json.loads((tmp_path / "area.json").read_text())
    CliRunner().invoke(collect.command, arguments, standalone_mode=False)
    assert len(runs) == 4 and json.loads((tmp_path / "area.json").read_text()) == first


def test_the_file_says_how_it_was_made(runs, tmp_path):
    with Store(tmp_path / "x.db") as store:
        found = collect.document([collect.counted(point, store) for point in points()])
    assert found["made"]["by"] == "make area-model" and found["made"]["seed"] == collect.SEED
    assert set(found["error"]) == {"lut", "ff"}
    assert all({"name", "held", "config", "lut", "ff", "estimate"} <= set(row) for row in found["points"])
    assert found["clock"]["error"] > 0 and len(found["clock"]["points"]) >= 2
