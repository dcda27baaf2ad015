"""cli/replay.py, with cases made here and with the golden ones."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op

VECTORS = sorted((Path(__file__).parents[3] / "shared" / "vectors").glob("*.npz"))
CFG = PRESETS["tiny"]


def write_case(path: Path, *, config: object = "tiny", expected: int = 7, pop: bool = False) -> Path:
    """A case that adds `imm` = 4 to one entry of 3s; with `pop` it waits for a token that nobody gives."""
    formats = Isa(CFG).formats
    rows = [
        formats["LOAD"].encode(op=Op.LOAD, mem=Mem.ACC, dram_base=256, y_size=1, x_size=1, x_stride=1),
        formats["LOAD"].encode(op=Op.LOAD, mem=Mem.UOP, dram_base=2000, y_size=1, x_size=1, x_stride=1),
        formats["ALU"].encode(
            op=Op.ALU, uop_end=1, iter_out=1, iter_in=1, alu_op=AluOp.ADD, use_imm=1, imm=4, push_next=1, pop_next=pop
        ),
        formats["STORE"].encode(
            op=Op.STORE, mem=Mem.OUT, dram_base=1030, y_size=1, x_size=1, x_stride=1, pop_prev=1, push_prev=1
        ),
        formats["LOAD"].encode(op=Op.LOAD, mem=Mem.UOP, pop_next=1),
        formats["FINISH"].encode(op=Op.FINISH),
    ]
    insn = np.concatenate(rows)
    dram = np.zeros(16384, np.uint8)
    dram[256 * 16 : 257 * 16] = np.full(4, 3, "<i4").view(np.uint8)
    dram[8192 : 8192 + insn.nbytes] = insn.astype("<u8").view(np.uint8).reshape(-1)
    after = dram.copy()
    after[1030 * 4 : 1031 * 4] = expected
    meta = {"name": path.stem, "insn_addr": 8192, "insn_count": len(insn), "config": config}
    np.savez(path, insn=insn, uop=np.zeros(1, np.uint32), dram_in=dram, dram_out=after, meta=json.dumps(meta))
    return path


FIELDS = '"insn_addr": 8192, "config": "tiny"'
MALFORMED = [
    f'{{{FIELDS}, "insn_count": Infinity}}',
    f'{{{FIELDS}, "insn_count": 5.9}}',
    f'{{{FIELDS}, "insn_count": 6, "buffers": [{{"name":"a","addr":"0x10","size":3}}]}}',
    "[" * 100_000,
]


def write_meta(path: Path, text: str) -> Path:
    """A case that differs, with `text` as its `meta`."""
    write_case(path, expected=8)
    with np.load(path) as found:
        arrays = dict(found)
    np.savez(path, **{**arrays, "meta": np.array(text)})
    return path


@pytest.mark.skipif(not VECTORS, reason="../shared/vectors is not there")
def test_golden_cases(tilewright):
    done = tilewright("replay", *VECTORS, "--on", "model")
    assert done.out.splitlines()[-1] == f"{len(VECTORS)} passed, 0 failed"
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize("config", ["tiny", CFG.to_dict()])
def test_the_configuration_is_the_cases(tilewright, tmp_path, config):
    done = tilewright("replay", write_case(tmp_path / "good.npz", config=config))
    assert done.status == 0, done.out
    assert done.out.splitlines()[-1] == "1 passed, 0 failed"


def test_every_failure_is_one_line_and_the_others_still_run(tilewright, tmp_path):
    cases = [
        write_case(tmp_path / "bytes.npz", expected=8),
        write_case(tmp_path / "tokens.npz", pop=True),
        write_case(tmp_path / "config.npz", config="tinny"),
        tmp_path / "missing.npz",
        tmp_path / "damaged.npz",
        write_case(tmp_path / "good.npz"),
    ]
    cases[4].write_bytes(cases[0].read_bytes()[:500])
    cases[5:5] = [write_meta(tmp_path / f"meta{k}.npz", text) for k, text in enumerate(MALFORMED)]
    done = tilewright("replay", *cases)
    lines = done.out.splitlines()
    assert (done.status, done.err) == (1, "")
    assert lines[-1] == f"1 passed, {5 + len(MALFORMED)} failed"
    assert lines[0].startswith("FAILED  bytes: 4 of 16384 bytes differ; the first at 0x1018")
    assert lines[1].startswith("FAILED  tokens: ") and "deadlock" in lines[1]
    assert lines[2].startswith("FAILED  ") and "unknown preset 'tinny'" in lines[2]
    assert lines[3] == f"FAILED  {cases[3]}: no such file; give an .npz file"
    assert lines[4].startswith(f"FAILED  {cases[4]}: not a readable .npz file")
    for path, line in zip(cases[5:-1], lines[5:]):
        assert line.startswith(f"FAILED  {path}: meta")
    assert lines[-2].startswith("passed  good")
    assert tilewright("replay", cases[0], cases[-1]).status == 1


@pytest.mark.usefixtures("slow_to_open")
def test_json(tilewright, tmp_path):
    done = tilewright(
        "replay", write_case(tmp_path / "good.npz"), write_case(tmp_path / "bad.npz", expected=1), "--json"
    )
    found = json.loads(done.out)
    assert done.status == 1
    assert (found["passed"], found["failed"], found["device"]) == (1, 1, "model")
    good, bad = found["cases"]
    assert (good["passed"], good["detail"], good["instructions"]) == (True, "", 6)
    assert good["seconds"] == 0  # the device was opened before
    assert bad["passed"] is False


def test_disasm_reads_the_same_cases(tilewright, tmp_path):
    done = tilewright("disasm", write_case(tmp_path / "good.npz"))
    assert done.out.splitlines()[3].endswith("ALU.ADD uop_end=1 iter_out=1 iter_in=1 use_imm=1 imm=4 push_next")


def test_metrics_of_cases_by_themselves_and_as_one(tilewright, tmp_path):
    good, other = write_case(tmp_path / "good.npz"), write_case(tmp_path / "bytes.npz", expected=8)
    stopped, path = write_case(tmp_path / "tokens.npz", pop=True), tmp_path / "p.json"
    done = tilewright("replay", good, other, stopped, "--on", "timing", "--profile", path, "--profile", "-")
    assert done.status == 1 and "compute_busy" in done.out and done.out.splitlines()[-1] == "1 passed, 2 failed"
    found = json.loads(path.read_text())
    assert [one["launch"] for one in found["launches"]] == ["good", "bytes"]  # the third one stops before its end
    assert found["metrics"]["cycles"] == sum(case.get("cycles", 0) for case in found["cases"]) > 0
    assert found["metrics"]["acc_high"] == found["metrics"]["uop_high"] == 1  # the program's one entry and micro-op
    done = tilewright("replay", good, "--on", "timing", "--profile", tmp_path / "p.trace")
    names = {event["name"] for event in json.loads((tmp_path / "p.trace").read_text())["traceEvents"]}
    assert done.status == 0 and {"ALU.ADD", "queue of compute"} <= names
    done = tilewright("replay", good, "--profile", good)
    assert done.status != 0 and "is also case 1 and would be overwritten" in done.err
