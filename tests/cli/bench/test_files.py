"""cli/bench/files.py: table, roofline plot and timeline of layers that were measured."""

import csv
import json
import xml.etree.ElementTree as xml

import pytest

from tilewright.cli.bench.files import make_folder, plot_roofline, write_all, write_table, write_timeline
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program
from tilewright.sim.dram import ZYNQ_HP

TINY = PRESETS["tiny"]
ROWS = [
    {"name": "C2.1", "cycles": 100, "macs": 1000, "load_bytes": 60, "store_bytes": 4},
    {"name": "add2.1", "cycles": 50, "macs": 0, "load_bytes": 60, "store_bytes": 30},
]


def program():
    p = Program(TINY, "p")
    x, y = p.buffer("x", (4, 4), 8), p.buffer("y", (4, 4), 8, kind="output")
    p.load(Mem.ACC8, 0, x, 0, x_size=4)
    p.store(0, y, 0, x_size=4)
    return p


def test_the_table_has_a_line_per_layer(tmp_path):
    rows = list(csv.DictReader(write_table(tmp_path / "t.csv", ROWS).read_text().splitlines()))
    assert rows == [{key: str(value) for key, value in row.items()} for row in ROWS]


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_roofline_names_every_layer(tmp_path, kind):
    pytest.importorskip("matplotlib")
    path = plot_roofline(tmp_path / f"r.{kind}", ROWS[:1], TINY, ZYNQ_HP)
    if kind == "png":
        assert path.read_bytes().startswith(b"\x89PNG")
    else:
        assert xml.parse(path).getroot().tag.endswith("svg") and "C2" in path.read_text()


def test_the_timeline_has_one_program_after_the_other(tmp_path):
    from tilewright.sim.timing import predict
    from tilewright.sim.trace import of_timing

    timing = predict(made := program())
    runs = [(name, timing.cycles, of_timing(timing, made.finish(), TINY)) for name in ("one", "two")]
    events = json.loads(write_timeline(tmp_path / "t.json", runs).read_text())["traceEvents"]
    layers = {event["name"]: event for event in events if event.get("cat") == "layer"}
    cycles = timing.cycles
    assert [(layers[name]["ts"], layers[name]["dur"]) for name in ("one", "two")] == [(0, cycles), (cycles, cycles)]
    stores = [event["ts"] for event in events if event["name"] == "STORE.OUT"]
    assert len(stores) == 2 and stores[1] - stores[0] == cycles


def test_without_cycles_there_is_a_table_alone(tmp_path):
    rows = [row | {"cycles": None} for row in ROWS]
    make_folder(tmp_path / "new")
    assert write_all(tmp_path / "new", rows, TINY, ZYNQ_HP, []) == [str(tmp_path / "new" / "layers.csv")]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file/in: cannot create this folder"):
        make_folder(tmp_path / "file" / "in")
