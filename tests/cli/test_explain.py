"""`tilewright explain`: statements, operators, occupancy, warnings, as text and JSON."""

import json
import re
from pathlib import Path

import tilewright as tw

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
    assert launch["occupancy"]["INP"] == {"entries": 64, "depth": 2048}
    assert "warning" not in done.out and "start_and_end" in done.out


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
    warning = next(line for line in text.splitlines() if line.startswith("warning: "))
    assert "instructions of 4.0 micro-ops each" in warning and "move loops inside the instruction" in warning


def test_bound_and_losses_are_the_cycles(tilewright):
    found = explained(tilewright, f"{SLOW}:schedule")
    (launch,) = found["launches"]
    for one in (found, launch):
        cycles = [loss["cycles"] for loss in one["losses"]]
        assert one["bound"] + sum(cycles) == one["cycles"] == launch["cycles"]
        assert cycles == sorted(cycles, reverse=True) and one["losses"][0]["name"] == "tiny_instructions"
    assert all(loss.keys() >= {"name", "cycles", "statement", "remedy"} for loss in found["losses"])


KERNEL = """
import tilewright as tw
from tilewright.hw.isa import Mem


@tw.kernel
def double(k, op):
    y = k.load(k.tile(Mem.ACC, **k.input(0).shape), k.input(0))
    y *= 2
    k.store(k.output, y)
"""


def test_a_kernel_with_the_shapes_of_its_inputs(tilewright, tmp_path):
    (tmp_path / "mine.py").write_text(KERNEL)
    found = explained(tilewright, f"{tmp_path / 'mine.py'}:double", "--shape", "x0=1,16,8,8")
    assert found["bound"] + sum(loss["cycles"] for loss in found["losses"]) == found["cycles"] > 0
    for shapes in (["y=1,16,8,8"], ["x1=1,16,8,8"]):
        done = tilewright("explain", f"{tmp_path / 'mine.py'}:double", "--shape", *shapes)
        name = shapes[0].split("=")[0]
        assert done.status and f"--shape {name}: the inputs of a kernel are x0, x1 and so on" in done.err
    done = tilewright("explain", f"{MATMUL}:schedule", "--config", "vta", "--shape", "x0=1,16,8,8")
    assert done.status and "the option is for kernels and networks: drop it" in done.err
    done = tilewright("explain", f"{tmp_path / 'mine.py'}:double")
    assert done.status == 5 and "a kernel needs the shapes of its inputs, as in --shape x0=1,16,8,8" in done.err


def test_shapes_are_read_by_name(tilewright, tmp_path):
    (tmp_path / "mine.py").write_text(KERNEL)
    kernel, one, two = f"{tmp_path / 'mine.py'}:double", "x0=1,16,8,8", "x1=1,16,1,1"
    found = explained(tilewright, kernel, "--shape", one, "--shape", two)
    assert found == explained(tilewright, kernel, "--shape", two, "--shape", one)


def test_of_launches_of_which_one_runs_the_first_is_told(tilewright, either, tmp_path):
    either.save(tmp_path / "either.tw")
    found = explained(tilewright, tmp_path / "either.tw")
    one, two = found["launches"]
    assert found["cycles"] == one["cycles"] == tw.explain(either).cycles < two["cycles"]


def test_an_unknown_operator_is_named(tilewright):
    done = tilewright("explain", DIGITS, "--operator", "conv9")
    assert done.status == 5 and "--operator conv9: unknown; the program has " in done.err and len(done.err) < 330


def test_a_program_recorded_by_hand(tilewright, double_py):
    (launch,) = explained(tilewright, f"{double_py}:double")["launches"]
    assert [row["operator"] for row in launch["operators"]] == ["launch"]
    assert launch["operators"][0]["cycles"] == launch["cycles"]
