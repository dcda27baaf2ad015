"""tools/area.py: the points that the seed draws, what is counted again, the fit and its file. Synthesis is replaced."""

import json

import pytest
from click.testing import CliRunner

from tilewright.apps.explore.area import PARTS, features_of, model
from tilewright.boards.synthesis import Resources, Synthesis
from tilewright.compiler.jobs import Store
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, PRESETS, Config
from tools import area
from tools.area import SEED, TIMES_OFF, points


def synthesis(cfg):
    lut, ff = 100 * cfg.block_in, 50 * cfg.block_in
    part = Resources(lut // 2, ff // 2)
    modules = {"engine": Resources(lut - 10, ff - 5, 2.0, 3), "engine.load": part, "engine.load.mover.writer": part}
    return Synthesis(cfg.name, Resources(lut, ff, 2.0, 3), modules)


@pytest.fixture
def runs(monkeypatch):
    """The names of the configurations that were synthesised."""
    seen = []
    monkeypatch.setattr(
        "tilewright.boards.synthesis.synthesise_blocks", lambda cfg, known: seen.append(cfg.name) or synthesis(cfg)
    )
    return seen


def test_points_can_be_built_are_different_and_hold_out_every_extension():
    found = points()
    for point in found:
        check_buildable(point.config)
    assert len({point.name for point in found}) == len(found)
    assert len({str(point.config.replace(name="").to_dict()) for point in found}) == len(found)
    fit, held = ([point.config for point in found if point.held is is_held] for is_held in (False, True))
    assert len(fit) >= 12 and {PRESETS["tiny"], PRESETS["pynq_z1"]} <= set(fit)
    assert len(held) >= 8 and {config.block_in for config in held} == {4, 8}
    for name in EXTENSIONS:
        assert sum(name not in config.extensions for config in held) >= TIMES_OFF, name
    assert found == points(SEED) != points(SEED + 1)


def test_the_points_held_out_in_the_file_are_those_that_the_seed_drew():
    held = {point["name"]: Config.from_dict(point["config"]) for point in model()["points"] if point["held"]}
    assert held == {point.name: point.config for point in points() if point.held}


def test_own_figures_add_up_to_the_total():
    found = area.own(synthesis(points()[0].config))
    assert found == {"": [10, 5], "engine": [190, 95], "engine.load": [0, 0], "engine.load.mover.writer": [200, 100]}


def test_blocks_belong_to_a_version_of_yosys(tmp_path, monkeypatch):
    with Store(tmp_path / "x.db") as store:
        area.Blocks(store).put("a", {"LUT6": 1})
        assert area.Blocks(store).get("a") == {"LUT6": 1}
        monkeypatch.setattr(area, "version", lambda name: "0.1")
        assert area.Blocks(store).get("a") is None


def test_a_second_run_counts_nothing_again(runs, tmp_path):
    arguments = ["--database", str(tmp_path / "x.db"), "--count", "4", "-o", str(tmp_path / "area.json")]
    done = CliRunner().invoke(area.command, arguments, standalone_mode=False)
    assert done.exception is None and "held0, held out: LUT " in done.output
    assert runs == [point.name for point in points()[:4]]
    first = json.loads((tmp_path / "area.json").read_text())
    CliRunner().invoke(area.command, arguments, standalone_mode=False)
    assert len(runs) == 4 and json.loads((tmp_path / "area.json").read_text()) == first
    assert first["made"]["by"] == "make area-model" and first["made"]["seed"] == area.SEED
    assert set(first["error"]) == {"lut", "ff"} and first["range"]["block_in"][0] == 4
    assert "dsp_packing" not in first["range"] and "name" not in first["range"]  # ranges are of numbers
    assert all({"name", "held", "config", "lut", "ff", "estimate"} <= set(row) for row in first["points"])
    assert first["clock"]["error"] > 0 and len(first["clock"]["points"]) >= 2


def test_areas_that_the_features_explain_are_estimated_exactly():
    """Points whose parts cost 10 LUTs and 3 flip-flops of each feature."""
    pytest.importorskip("scipy")
    found = []
    for point in points():
        sums = {part: sum(features.values()) for part, features in features_of(point.config).items()}
        parts = {paths[0]: [10 * sums[part], 3 * sums[part]] for part, paths in PARTS.items()}
        lut, ff = (sum(own[k] for own in parts.values()) for k in (0, 1))
        found.append({"name": point.name, "held": point.held, "config": point.config.to_dict(), "lut": lut, "ff": ff})
        found[-1]["parts"] = parts
    costs = area.fitted([one for one in found if not one["held"]])
    for one in found:
        one["estimate"] = area.estimated(one, costs)
        assert abs(area.error(one, "lut")) < 0.02 and abs(area.error(one, "ff")) < 0.02, one["name"]


def test_blocks_belong_to_the_part_with_the_longest_path():
    parts = {"": [5, 1], "engine.load.mover.writer": [7, 2], "engine.load": [1, 1], "engine.queue_load": [3, 0]}
    found = area.by_part({"parts": parts})
    assert found["control"] == [5, 1] and found["load"] == [8, 3] and found["queues"] == [3, 0]
