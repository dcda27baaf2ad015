"""cli/compile.py and cli/programs.py: sources, what is written, what is said."""

import json
import re
from pathlib import Path

import pytest

from tilewright.hw.config import PRESETS
from tilewright.runtime.executable import Executable

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_a_recorded_program_becomes_a_file_for_the_named_configuration(tilewright, double_py, tmp_path):
    out = tmp_path / "x.tw"
    done = tilewright("compile", f"{double_py}:double", "-o", out, "--config", "tiny")
    assert done.status == 0, done.err
    assert done.err == ""
    assert done.out.splitlines()[-1].startswith(f"{out}: ")
    assert re.search(r"for tiny, verified: no deadlock, no race, \d+ tokens, none implied by others, ", done.out)
    assert Executable.load(out).cfg == PRESETS["tiny"]


def test_json(printed, double_py, tmp_path):
    found = printed("compile", f"{double_py}:double", "-o", tmp_path / "x.tw")
    assert found["config"] == "pynq_z1"
    assert found["verified"] is True
    (layer,) = found["layers"]
    assert layer["where"] == "device"
    assert layer["instructions"] > 3


def test_a_configuration_file(tilewright, double_py, tmp_path):
    config = tmp_path / "mine.json"
    config.write_text(json.dumps(PRESETS["tiny"].to_dict() | {"name": "mine", "acc_bytes": 4096}))
    done = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "x.tw", "--config", config)
    assert done.status == 0, done.err
    assert Executable.load(tmp_path / "x.tw").cfg.acc_bytes == 4096


def test_races_are_found_before_anything_is_written(tilewright, tmp_path):
    source = tmp_path / "race.py"
    source.write_text(
        "from tilewright.hw.isa import AluOp, Mem\n"
        "from tilewright.runtime.program import Program\n"
        "def race(cfg):\n"
        "    p = Program(cfg, 'race', tokens='explicit')\n"
        "    y = p.buffer('y', (1, cfg.batch, cfg.block_out), kind='output')\n"
        "    p.alu(AluOp.ADD, [], imm=1)\n"
        "    p.store(0, y, 0)\n"
        "    return p\n"
    )
    out = tmp_path / "race.tw"
    done = tilewright("compile", f"{source}:race", "-o", out)
    assert done.status == 8
    assert done.err.startswith("tilewright: error: step 'race': race on ACC entries 0..0: instruction ")
    assert not out.exists()
    assert tilewright("compile", f"{source}:race", "-o", out, "--no-verify").status == 0
    assert tilewright("verify", out).status == 8


def test_nothing_is_left_behind_by_a_failure(tilewright, double_py, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert tilewright("compile", f"{double_py}:missing", "-o", tmp_path / "x.tw").status == 6
    assert sorted(tmp_path.iterdir()) == before


def test_c_sources(tilewright, double_py, tmp_path):
    out = tmp_path / "c"
    done = tilewright("compile", f"{double_py}:double", "--emit", "c", "-o", out, "--binary", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["folder"] == str(out)
    assert {"network.h", "network.c", "network.bin", "Makefile"} <= {p.name for p in out.iterdir()}
    (out / "mine.c").write_text("mine")
    again = tilewright("compile", f"{double_py}:double", "--emit", "c", "-o", out)
    assert again.status == 0 and again.out.splitlines()[-1].startswith(f"{out}: ")
    assert (out / "mine.c").exists() and not (out / "network.bin").exists()


def test_c_sources_are_not_written_over_other_files(tilewright, double_py, tmp_path):
    done = tilewright("compile", f"{double_py}:double", "--emit", "c", "-o", tmp_path)
    assert done.status == 6
    assert done.err == f"tilewright: error: {tmp_path}: is not empty, and was not generated; give a new folder\n"


def test_options_of_c_sources_are_not_for_programs(tilewright, double_py, tmp_path):
    for option in (["--binary"], ["--tokenizer", "words.bin"]):
        done = tilewright("compile", f"{double_py}:double", "-o", tmp_path / "x.tw", *option)
        assert done.status == 5
        assert done.err == f"tilewright: error: {' '.join(option)} is only for C sources; add --emit c, or drop it\n"


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["-o", ""], 6, "the name of the folder is empty; give one, which is made"),
        (["--tokenizer", "none.bin"], 6, "none.bin: no such file"),
        (["--tokenizer", "none.bin", "--binary"], 5, "takes its program from an array, not from a .bin"),
    ],
)
def test_mistakes_in_options_of_c_sources_are_found_before_compiling(
    refused, tmp_path, monkeypatch, options, status, text
):
    monkeypatch.setattr("tilewright.cli.compile.compile_source", None)
    refused(status, text, "compile net.tflite --emit c -o", tmp_path / "c", *options)


def test_c_sources_of_a_program_that_was_compiled_before(tilewright, double_py, tmp_path):
    program, out = tmp_path / "x.tw", tmp_path / "c"
    assert tilewright("compile", f"{double_py}:double", "-o", program, "--config", "tiny").status == 0
    done = tilewright("compile", program, "--emit", "c", "-o", out, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["config"] == json.loads((out / "config.json").read_text())["name"] == "tiny"
    assert tilewright("compile", program, "--emit", "c", "-o", out, "--config", "vta").status == 8
    assert tilewright("compile", program, "-o", tmp_path / "y.tw").status == 6


def test_a_memory_to_compile_for(tilewright, refused, double_py, tmp_path):
    done = {}
    for dram in ("zynq_hp", "zynq_hp,port_bytes=1"):
        out = tmp_path / f"{len(done)}.tw"
        found = tilewright("compile", DIGITS, "-o", out, "--config", "tiny", "--dram", dram)
        assert found.status == 0, found.err
        done[dram] = sum(len(step.launch.insn) for step in Executable.load(out).launches)
    assert len(set(done.values())) == 2
    refused(3, "unknown memory 'none'; known are zynq_hp", "compile", DIGITS, "-o", tmp_path / "x.tw", "--dram", "none")
    made = tilewright("compile", tmp_path / "0.tw", "--emit", "c", "-o", tmp_path / "c", "--dram", "ideal")
    assert made.status == 5 and "--dram ideal: " in made.err and "drop it" in made.err


def test_ready_schedules_of_a_source_suit_the_memory(tilewright, tmp_path):
    source = tmp_path / "layer.py"
    source.write_text(
        "from tilewright.compiler.conv_shape import ConvShape\n"
        "from tilewright.compiler.schedule.conv2d import conv2d_of\n"
        "def layer(cfg):\n"
        "    return conv2d_of(cfg, ConvShape(1, 16, 16, 16, 16, (3, 3), (1, 1), (1, 1, 1, 1)))\n"
    )
    sizes = set()
    for dram in ("zynq_hp", "zynq_hp,port_bytes=1,latency=200"):
        done = tilewright("compile", f"{source}:layer", "-o", tmp_path / "x.tw", "--config", "tiny", "--dram", dram)
        assert done.status == 0, done.err
        sizes.add(Executable.load(tmp_path / "x.tw").launches[0].launch.insn.tobytes())
    assert len(sizes) == 2
