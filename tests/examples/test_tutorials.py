"""The tutorials run, print their instructions, and show what they say."""

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"


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
    launch = example["build"](example["schedule"](), example["CFG"]).finish()
    found = example["overlaps"](launch)
    assert [thread for _, thread, _ in found] == [0, 1] * 4
    assert all(loads for _, _, loads in found[:-1])  # after the last step nothing is left to load


def test_one_thread_cannot_overlap():
    example = runpy.run_path(str(FOLDER / "matmul_vthread.py"))
    launch = example["build"](example["schedule"](threads=1), example["CFG"]).finish()
    isa, insns = example["Isa"](launch.cfg), example["Isa"](launch.cfg).decode(launch.insn)
    gemms = [k for k, f in enumerate(insns) if f["op"] == example["Op"].GEMM and not f["reset"]]
    loads = {k for k, f in enumerate(insns) if isa.queue(f) == example["Queue"].LOAD}
    for gemm in gemms:
        assert not {k for k in example["may_finish_during"](launch, gemm) & loads if k > gemm}
