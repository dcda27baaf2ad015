"""`tilewright bench resnet18`, on its smallest layers, and its files."""

import csv
import json
import shutil
import xml.etree.ElementTree as xml

import pytest

pytest.importorskip("tvm")
pytest.importorskip("amaranth")
pytest.importorskip("matplotlib")

COMMAND = ["bench", "resnet18", "--on", "timing"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of tiles of the test's own; what Verilator built stays where it is."""
    from tilewright.compiler.tune import search

    monkeypatch.setattr(search, "cache_folder", lambda kind: tmp_path / kind)


def test_layers_on_the_timing_model_and_their_files(printed, tmp_path):
    out = tmp_path / "new"
    found = printed("bench resnet18 --on timing --layer C11 --layer add5.1 --out", out)
    assert (found["config"], found["dram"], found["device"]) == ("pynq_z1", "zynq_hp", "timing")
    conv, add = found["layers"]
    assert (conv["name"], conv["op"], add["name"], add["op"]) == ("C11", "conv2d", "add5.1", "add")
    assert conv["exact"] and add["exact"] and not add["offloaded"]
    assert conv["ideal"] == conv["gemm_busy"] == 25088 and add["ideal"] == 0
    assert conv["roofline"] == 25088 and conv["roofline_of"] == "gemm" and conv["vta_cycles"] == 108100
    assert conv["roofline"] < conv["cycles"] < 1.3 * conv["roofline"]
    assert conv["utilisation"] == pytest.approx(25088 / conv["cycles"])
    assert conv["bound"] == "gemm" and conv["of_roofline"] == conv["cycles"] / 25088
    assert found["total"]["cycles"] == conv["cycles"] + add["cycles"]
    assert found["offloaded"]["cycles"] == conv["cycles"] and conv["loads_beside_gemm"] > 0.8
    assert sorted(path.name for path in out.iterdir()) == [
        "layers.csv",
        "roofline.png",
        "roofline.svg",
        "timeline.json",
    ]
    assert sorted(found["files"]) == sorted(map(str, out.iterdir()))
    rows = list(csv.DictReader((out / "layers.csv").read_text().splitlines()))
    assert [(row["name"], int(row["cycles"])) for row in rows] == [(row["name"], row["cycles"]) for row in (conv, add)]
    assert (out / "roofline.png").read_bytes().startswith(b"\x89PNG")
    assert xml.parse(out / "roofline.svg").getroot().tag.endswith("svg") and "C11" in (out / "roofline.svg").read_text()
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    layers = [(event["name"], event["ts"], event["dur"]) for event in events if event.get("cat") == "layer"]
    assert layers == [("C11", 0, conv["cycles"]), ("add5", conv["cycles"], add["cycles"])]
    stores = [event["ts"] for event in events if event["name"].startswith("STORE.")]
    assert min(stores) < conv["cycles"] < max(stores) < conv["cycles"] + add["cycles"]


def test_comparisons_are_printed(tilewright):
    done = tilewright(*COMMAND, "--layer", "C11", "--compare", "threads", "--compare", "tiles")
    assert done.status == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    heads = [line for line in lines if line and line[0] == "shape"]
    assert [line[1:] for line in heads] == [
        ["cycles", "one", "thread", "gain"],
        ["cycles", "largest", "tile", "gain"],
        ["buffers", "/", "8", "largest", "tile", "gain"],
    ]
    gains = [float(line[-1]) for line in lines if line and line[0] == "C11" and len(line) == 4]
    assert len(gains) == 3 and min(gains) >= 1


def test_the_behavioural_model_checks_values_alone(tilewright, printed, tmp_path):
    found = printed("bench resnet18 --on model --layer add5.2 --out", tmp_path / "new")
    (row,) = found["layers"]
    assert row["exact"] and row["cycles"] is None and row["store_bytes"] == 49 * 512
    assert found["files"] == [str(tmp_path / "new" / "layers.csv")]
    shown = tilewright("bench", "resnet18", "--on", "model", "--layer", "add5.2")
    assert shown.out.split()[:4] == ["name", "op", "gemm", "busy"] and "on model, simulated" in shown.out


def test_what_takes_no_time_is_said_and_not_compared_with_vta(tilewright, printed):
    command = [*COMMAND, "--layer", "C11", "--skip", "gemm", "--skip", "alu"]
    found = printed(*command, "--compare", "threads")
    (row,) = found["layers"]
    assert found["skip"] == ["alu", "gemm"]
    assert row["vta_cycles"] is None and row["speedup"] is None
    assert row["cycles"] < row["ideal"] and row["loads_beside_gemm"] < 0.1 and row["one_thread"] < row["ideal"]
    done = tilewright(*command)
    assert done.status == 0, done.err
    assert "simulated; alu, gemm without time" in done.out and "published" not in done.out


def test_a_shapes_name_stands_for_its_layers(printed, refused):
    found = printed("bench resnet18 --on model --layer add5.1 --layer C5")
    assert [row["name"] for row in found["layers"]] == ["add5.1", "C5"]
    refused(5, ", fc, C3, C2, add2, C6, add3, C9, add4, C12, add5", "bench resnet18 --layer C13")


def test_another_memory_and_its_roofline(printed):
    rows = []
    for dram in ("zynq_hp", "zynq_hp,port_bytes=4"):
        found = printed("bench resnet18 --on timing --layer add5.2 --dram", dram)
        assert found["dram"] == dram
        rows += found["layers"]
    assert rows[1]["roofline"] == 2 * rows[0]["roofline"] and rows[1]["cycles"] > 1.5 * rows[0]["cycles"]


def test_the_layer_outside_the_total_alone(tilewright):
    done = tilewright(*COMMAND, "--layer", "C3")
    assert done.status == 0, done.err
    assert "C3" in done.out and "total" not in done.out


def test_mistakes_are_named(refused, tmp_path):
    text = "--compare: device 'model' counts no cycles; use --on timing"
    refused(5, text, "bench resnet18 --layer fc --compare tiles")
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "in"
    refused(6, f"{folder}: cannot create this folder", "bench resnet18 --layer add5.2 --out", folder)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_circuit_tells_which_tiles_were_loaded_beside_gemm(printed, tmp_path):
    out = tmp_path / "new"
    conv, add = printed("bench resnet18 --on rtl --layer C11 --layer add5.2 --out", out)["layers"]
    assert conv["exact"] and 0.8 * conv["tiles"] <= conv["tiles_beside_gemm"] < conv["tiles"]
    assert 0.8 < conv["loads_beside_gemm"] < 1
    assert add["exact"] and 0 < add["tiles_beside_gemm"] < add["tiles"]
    events = json.loads((out / "timeline.json").read_text())["traceEvents"]
    products = sum(event["dur"] for event in events if event["name"] == "GEMM")
    assert products >= conv["gemm_busy"]
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= conv["cycles"] + add["cycles"]
