"""`tilewright explain`: statements, operators, occupancy, warnings, as text and JSON."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MATMUL = ROOT / "examples/matmul_vthread.py"
DIGITS = ROOT / "examples/digits/digits.onnx"
SLOW = ROOT / "tests/cli/planted/tiny_instructions_1.py"


def explained(tilewright, *arguments):
    """The JSON document."""
    done = tilewright("explain", *arguments, "--json")
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def test_a_schedule_with_its_lowered_tir(tilewright):
    done = tilewright("explain", f"{MATMUL}:schedule", "--config", "vta")
    assert (done.status, done.err) == (0, "")
    notes = re.findall(r"^ *# statement (\d+): (.*); ([\d,]+) cycles", done.out, re.MULTILINE)
    assert [int(number) for number, *_ in notes] == list(range(1, 9))
    assert notes[3][1] in ("8 GEMM, 8 LOAD.UOP", "8 LOAD.UOP, 8 GEMM")
    assert "pragma_tilewright" not in done.out
    found = explained(tilewright, f"{MATMUL}:schedule", "--config", "vta")
    (launch,) = found["launches"]
    assert found["config"] == "vta" and "def main(x: " in found["tir"]
    assert sum(row["cycles"] for row in launch["statements"]) == launch["cycles"]
    by_number = {row["path"][-1].split(":")[0]: row for row in launch["statements"] if row["path"]}
    assert {number: row["cycles"] for number, row in by_number.items()} == {
        number: int(cycles.replace(",", "")) for number, _, cycles in notes
    }
    assert by_number["4"]["by_instruction"] == {"GEMM": 8, "LOAD.UOP": 8}
    assert launch["occupancy"]["INP"] == {"entries": 64, "depth": 2048} and launch["warnings"] == []


def test_a_network_by_operator(tilewright):
    found = explained(tilewright, DIGITS)
    (launch,) = found["launches"]
    assert found["tir"] is None and found["dram"] == "zynq_hp" and len(launch["operators"]) > 3
    assert sum(row["cycles"] for row in launch["operators"]) == launch["cycles"]
    name = launch["operators"][1]["operator"]
    text = tilewright("explain", DIGITS, "--operator", name).out
    assert "gemm(acc.acc, inp.input" in text or "gemm(acc.acc, inp.x" in text and "STORE.OUTQ" in text
    slower = explained(tilewright, DIGITS, "--dram", "zynq_hp,latency=200")
    assert slower["launches"][0]["cycles"] > launch["cycles"]


def test_a_program_file_has_its_statements(tilewright, tmp_path):
    path = tmp_path / "m.tw"
    assert tilewright("compile", f"{MATMUL}:schedule", "-o", path, "--config", "vta").status == 0
    from_source, from_file = explained(tilewright, f"{MATMUL}:schedule", "--config", "vta"), explained(tilewright, path)
    assert from_file["launches"] == from_source["launches"] and from_file["tir"] is None


def test_warnings_say_what_to_do(tilewright):
    text = tilewright("explain", f"{SLOW}:schedule").out
    (warning,) = [line for line in text.splitlines() if line.startswith("warning: ")]
    assert "instructions of 4.0 micro-ops each: move loops inside the instruction" in warning
    (launch,) = explained(tilewright, f"{SLOW}:schedule")["launches"]
    assert [row["kind"] for row in launch["warnings"]] == ["tiny_instructions"]


def test_an_unknown_operator_is_named(tilewright):
    done = tilewright("explain", DIGITS, "--operator", "conv9")
    assert done.status == 5 and "--operator conv9: unknown; the program has " in done.err and len(done.err) < 330


def test_a_program_recorded_by_hand(tilewright, double_py):
    (launch,) = explained(tilewright, f"{double_py}:double")["launches"]
    assert [row["operator"] for row in launch["operators"]] == ["launch"]
    assert launch["operators"][0]["cycles"] == launch["cycles"]
