"""The tutorials run, as scripts and through the command, print their instructions, and show what they say."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.main import run as command
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import Isa, Op

pytest.importorskip("tvm")
FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def arguments(monkeypatch, tmp_path):
    """The tutorials are given a file to write, as `FILE.npz`."""
    monkeypatch.setattr("sys.argv", ["tutorial", str(tmp_path / "x.npz")])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["vector_add", "matmul_vthread", "conv2d"])
@pytest.mark.parametrize("device", ["model", "timing"])
def test_the_command_compiles_and_runs_what_the_script_checked(name, device, tmp_path, capsys):
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    values = np.load(tmp_path / "x.npz")["outputs"].size
    compile_and_run(FOLDER / f"{name}.py", tmp_path, device)
    assert f"outputs equal to the file's: 1 of 1, {values:,} of {values:,} values" in capsys.readouterr().out


def compile_and_run(source, folder, device):
    program = str(folder / "x.tw")
    assert command(["compile", f"{source}:schedule", "-o", program]) == 0
    assert command(["run", program, "--inputs", str(folder / "x.npz"), "--on", device]) == 0


@pytest.mark.circuit
def test_the_command_compiles_and_runs_the_layer_that_is_tuned(tmp_path, capsys):
    example = runpy.run_path(str(FOLDER / "tune_conv2d.py"))
    example["main"](tmp_path, example["CASES"][:1], trials=1)
    (tmp_path / "first.npz").rename(tmp_path / "x.npz")
    compile_and_run(FOLDER / "tune_conv2d.py", tmp_path, "model")
    assert "outputs equal to the file's: 1 of 1, 200,704 of 200,704 values" in capsys.readouterr().out


SMALL = Config("small", block_in=8, block_out=8, inp_bytes=1 << 14, wgt_bytes=1 << 16, acc_bytes=1 << 16)


@pytest.mark.parametrize("name", ["vector_add", "matmul_vthread", "conv2d"])
@pytest.mark.parametrize("cfg", [PRESETS["pynq_z1"], SMALL], ids=lambda cfg: cfg.name)
def test_the_schedules_take_their_blocks_from_the_configuration(name, cfg):
    example = runpy.run_path(str(FOLDER / f"{name}.py"))
    program = example["tw"].build(example["schedule"](cfg), cfg)
    assert all(buffer.shape[-1] == cfg.block_out for buffer in program.buffers.values())


def test_the_convolution_is_padded_on_chip_by_loads(capsys):
    example = runpy.run_path(str(FOLDER / "conv2d.py"))
    launch = example["tw"].build(example["schedule"](), example["CFG"]).finish()
    loads = [f for f in Isa(launch.cfg).decode(launch.insn) if f["op"] == Op.LOAD and f.get("x_pad_0")]
    blocks = example["CI"] // launch.cfg.block_in
    assert [(f["y_pad_0"], f["y_pad_1"]) for f in loads] == [(1, 0)] * blocks + [(0, 1)] * blocks
    example["main"]()
    out = capsys.readouterr().out
    assert "12544 results equal numpy's" in out
    one, two = (int(found.replace(",", "")) for found in re.findall(r"thread\(s\): ([\d,]+) cycles", out))
    assert 28224 < two < 0.85 * one


def test_vector_add_ends_with_checked_sums(capsys):
    runpy.run_path(str(FOLDER / "vector_add.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "T.prim_func" in out and "ALU.ADD" in out and "FINISH" in out
    assert out.splitlines()[-1].startswith("--- 4096 sums equal numpy's")


def test_matmul_prints_its_stream_and_a_checked_product(capsys):
    runpy.run_path(str(FOLDER / "matmul_vthread.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("GEMM") > 8 and "free to run: loads [6] of thread 1" in out
    assert out.splitlines()[-1].startswith("--- 2048 results equal numpy's")


def test_loads_of_one_thread_are_free_to_run_while_the_other_computes():
    example = runpy.run_path(str(FOLDER / "matmul_vthread.py"))
    launch = example["tw"].build(example["schedule"](), example["CFG"]).finish()
    found = example["overlaps"](launch)
    assert [thread for _, thread, _ in found] == [0, 1] * 4
    assert all(loads for _, _, loads in found[:-1])  # after the last step nothing is left to load


def test_one_thread_cannot_overlap():
    example = runpy.run_path(str(FOLDER / "matmul_vthread.py"))
    launch = example["tw"].build(example["schedule"](threads=1), example["CFG"]).finish()
    isa, insns = example["Isa"](launch.cfg), example["Isa"](launch.cfg).decode(launch.insn)
    gemms = [k for k, f in enumerate(insns) if f["op"] == example["Op"].GEMM and not f["reset"]]
    loads = {k for k, f in enumerate(insns) if isa.queue(f) == example["Queue"].LOAD}
    for gemm in gemms:
        assert not {k for k in example["may_finish_during"](launch, gemm) & loads if k > gemm}
