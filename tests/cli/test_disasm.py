"""cli/disasm.py."""

import json

import numpy as np


def test_a_program_names_its_buffers(tilewright, double_tw):
    done = tilewright("disasm", double_tw)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0] == f"double: {len(lines) - 1} instructions"
    assert any("LOAD.ACC" in line and line.endswith("@x") for line in lines)
    assert any("STORE.OUT" in line and "@y" in line for line in lines)
    assert "FINISH" in lines[-1]


def test_a_recorded_case_is_read_from_its_memory(tilewright, tmp_path):
    dram = np.zeros(4096, np.uint8)
    insn = np.array([[0x0010004000200044, 0xFFB3A00202000808], [3, 0]], "<u8")
    dram[1024 : 1024 + insn.nbytes] = insn.view(np.uint8).reshape(-1)
    meta = {"name": "add", "config": "1x16_i8w8a32_15_15_18_17", "insn_addr": 1024, "insn_count": 2}
    np.savez(tmp_path / "case.npz", dram_in=dram, dram_out=dram, meta=json.dumps(meta))
    found = json.loads(tilewright("disasm", tmp_path / "case.npz", "--json").out)["launches"]["add"]
    assert len(found) == 2
    assert "ALU.ADD" in found[0] and "imm=-77" in found[0]
    np.savez(tmp_path / "case.npz", dram_in=dram, dram_out=dram, meta=json.dumps(meta | {"insn_addr": 4080}))
    done = tilewright("disasm", tmp_path / "case.npz")
    assert done.status == 6
    assert done.err.endswith("case.npz: instructions at 0xff0 to 0x1010 are outside its memory\n")


def test_an_npz_file_that_is_no_case(tilewright, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, inputs=np.zeros(3))
    done = tilewright("disasm", path)
    assert done.status == 6
    assert f"{path}: not a case: it lacks dram_in, dram_out, meta" in done.err
