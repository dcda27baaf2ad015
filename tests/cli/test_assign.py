"""cli/assign.py on the example network."""

import json
from pathlib import Path

import pytest

from tilewright.hw.config import PRESETS

pytest.importorskip("onnx")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_table(tilewright):
    done = tilewright("assign", DIGITS)
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:5] == ["operator", "kind", "MACs", "headroom", "module"]
    conv = next(line for line in lines if "conv1" in line)
    assert "accelerator" in conv and "host" in conv
    assert any(line.startswith("arena of ") and "lower bound" in line for line in lines)
    assert "simulated" in lines[-1] and "modelled" in lines[-1]


def test_json(printed):
    found = printed("assign", DIGITS, "--config", "tiny")
    assert found["config"] == "tiny" and found["cycles"] > 0 and 0 < found["host_share"] < 1
    assert found["launches"] == 1 and found["device_macs_share"] == 1.0
    assert all(arena["bytes"] >= arena["bound"] for arena in found["arenas"])
    spare = {row["operator"]: row["headroom"] for row in found["operators"]}
    assert all(spare[name] == "" or 0 <= spare[name] < 32 for name in spare) and any(spare.values())
    assert {row["module"] for row in found["operators"]} == {"accelerator", "host"}


@pytest.mark.parametrize("config", ["pynq_z1", "vta"])
def test_rows_add_up_to_the_total(tilewright, config):
    found = json.loads(tilewright("assign", DIGITS, "--json", "--config", config).out)
    rows = sum(row["us"] for row in found["operators"])
    assert rows == pytest.approx(found["accelerator_us"] + found["host_us"], rel=1e-6)
    assert all(row["us"] >= 0 for row in found["operators"])


def test_a_slow_memory_takes_its_time(tilewright):
    usual, slow = (
        json.loads(tilewright("assign", DIGITS, "--json", "--config", "tiny", *dram).out)
        for dram in ((), ("--dram", "zynq_hp,port_bytes=1"))
    )
    assert slow["cycles"] > usual["cycles"]
    rows = sum(row["us"] for row in slow["operators"])
    assert rows == pytest.approx(slow["accelerator_us"] + slow["host_us"], rel=1e-6)


@pytest.mark.parametrize(
    "words",
    [["assign"], ["explain"], ["run", "--on", "timing"], ["report", "--on", "timing"], ["tune", "--on", "timing"]],
)
def test_two_load_ports_need_a_memory_in_every_verb_that_gives_cycles(tilewright, refused, tmp_path, words):
    (config := tmp_path / "two.json").write_text(json.dumps(PRESETS["tiny"].replace(load_ports=2).to_dict()))
    verb, *more = words
    more += {
        "run": ["--inputs", DIGITS.parent / "inputs.npz"],
        "report": ["-o", tmp_path / "r.html"],
        "tune": ["--db", tmp_path / "t"],
    }.get(verb, [])
    refused(5, "with --dram zynq_hp4", verb, DIGITS, "--config", config, *more)
    if verb in ("assign", "explain"):
        assert tilewright(verb, DIGITS, "--config", config, "--dram", "zynq_hp4").status == 0


def test_other_files(tilewright, tmp_path):
    (tmp_path / "x.tw").write_bytes(b"\xff" * 30)
    assert tilewright("assign", tmp_path / "x.tw").status == 5


def test_passes(tilewright, printed):
    found = printed("assign --passes", "--config", "tiny")
    names = [row["pass"] for row in found["passes"] if row["module"] == "accelerator"]
    assert names.index("simplify") < names.index("moved_states") < names.index("pairs")
    assert [row["pass"] for row in found["passes"] if row["module"] == "host"] == ["tabled", "scaled_sums"]
    assert all(row["what it does"].endswith(".") for row in found["passes"])
    done = tilewright("assign", "--passes", "--config", "vta")
    assert done.status == 0 and "tabled" in done.out and "simplify" not in done.out


def test_passes_are_those_of_a_configuration(refused):
    refused(2, "without MODEL", "assign", DIGITS, "--passes")
    refused(2, "Missing argument 'MODEL'", "assign")
