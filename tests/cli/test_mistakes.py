"""A user's ten likely mistakes, each through the real command: one clear line, a named exit status, no traceback.

Nothing is written by any of them.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

LONGEST = 321  # characters of a line, "tilewright: error: " and paths apart
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

RECORDED = """
from tilewright.hw.isa import Mem
from tilewright.runtime.program import Program


def overflow(cfg):
    p = Program(cfg)
    x = p.buffer("activations", (4096, cfg.batch, cfg.block_in))
    p.load(Mem.INP, 0, x, 0, x_size=4096)
    return p


def field(cfg):
    p = Program(cfg)
    x = p.buffer("activations", (4096, cfg.batch, cfg.block_in))
    p.load(Mem.INP, 0, x, 0, y_size=2, x_stride=70000)
    return p


def broken(cfg):
    return undefined
"""

SCHEDULED = """
from tvm.script import tirx as T


@T.prim_func
def squares(x: T.Buffer((64, 1, 16), "int32"), y: T.Buffer((64, 1, 16), "int8")):
    acc = T.alloc_buffer((64, 1, 16), "int32", scope="local.acc")
    for i, b, c in T.grid(64, 1, 16):
        acc[i, b, c] = x[i, b, c]
    for i, b, c in T.grid(8, 1, 16):
        acc[i, b, c] = acc[i, b, c] + acc[i * i, b, c]
    for i, b, c in T.grid(64, 1, 16):
        y[i, b, c] = T.cast(acc[i, b, c], "int8")


def tile(cfg):
    from tilewright.compiler.schedule.conv2d import conv2d
    from tilewright.compiler.tile import Tile

    return conv2d(cfg, 1, 56, 56, 64, 64, 3, 3, (1, 1), (1, 1, 1, 1), tile=Tile(oy=56, ox=56, co=4, ci=4))
"""


@pytest.fixture
def mistake(tilewright, tmp_path):
    """Runs the command, which must fail with `status` and one line that matches `text`; checks what is left behind."""

    def check(status: int, text: str, *arguments: object):
        before = sorted(tmp_path.iterdir())
        done = tilewright(*arguments)
        assert done.status == status, done
        assert done.out == ""
        assert re.fullmatch(rf"tilewright: error: {text}\n", done.err), done.err
        assert len(done.err.replace(str(tmp_path), "")) <= LONGEST
        assert sorted(tmp_path.iterdir()) == before

    return check


@pytest.fixture
def no_program(mistake, tmp_path):
    """`mistake`, of compiling a source."""
    return lambda status, text, source, *more: mistake(status, text, "compile", source, "-o", tmp_path / "x.tw", *more)


@pytest.fixture
def recorded(tmp_path) -> Path:
    path = tmp_path / "recorded.py"
    path.write_text(RECORDED)
    return path


@pytest.fixture
def scheduled(tmp_path) -> Path:
    pytest.importorskip("tvm")
    path = tmp_path / "scheduled.py"
    path.write_text(SCHEDULED)
    return path


def test_unknown_preset(no_program):
    known = "vta, pynq_z1, pynq_z1_lean, pynq_z1_plus, pynq_z1_resident, pynq_z1_fast, pynq_z1_two, tiny, tiny_two"
    text = rf"unknown preset 'pynq-z1'; known are {known}, or give a \.json file"
    no_program(3, text, DIGITS, "--config", "pynq-z1")


def test_a_field_that_does_not_fit(no_program, recorded):
    text = r"LOAD\.x_stride = 70000: outside 0\.\.65535 \(16 bits\)"
    no_program(4, text, f"{recorded}:field")


def test_buffers_whose_indices_do_not_fit(no_program, tmp_path):
    (tmp_path / "big.json").write_text('{"acc_bytes": 262144, "wgt_bytes": 524288}')
    depths = r"Config\.acc_bytes, inp_bytes, wgt_bytes: depths 4096, 2048, 2048 need 34 index bits"
    text = f"{depths}, .*; nearest is inp_bytes = 8192 .*"
    no_program(3, text, DIGITS, "--config", tmp_path / "big.json")


def test_scratchpad_overflow_names_the_buffer(no_program, recorded):
    text = "load of 'activations' writes INP entry 4095, but pynq_z1 has 2048"
    no_program(7, text, f"{recorded}:overflow")


def test_a_tile_that_does_not_fit_names_the_buffer(no_program, scheduled):
    text = r"local\.inp is too small: .* the largest is 'input' with 13456 .*, pynq_z1 has 2048; choose smaller tiles"
    no_program(7, text, f"{scheduled}:tile")


def test_unsupported_onnx_operators_by_node_name(no_program, tmp_path):
    pytest.importorskip("tvm")
    pytest.importorskip("onnx")
    from tests.compiler.conftest import QdqModel

    m = QdqModel(tmp_path)
    x = m.quantise(m.input("x", [1, 16]))
    for kind in ("Asinh", "Cosh"):
        m.output(m.node(kind, x, name=f"the_{kind.lower()}"))
    m.save("m.onnx")
    text = r".*m\.onnx: 2 unsupported operators: Asinh 'the_asinh' is not supported; Cosh 'the_cosh' is not supported"
    no_program(5, text, tmp_path / "m.onnx")


def test_wrong_input_shape(mistake, double_tw, tmp_path):
    np.savez(tmp_path / "in.npz", inputs=np.zeros((2, 8, 16), np.int32))
    text = r".*in\.npz: input 'x' has shape \(2, 8, 16\); give \(8, 1, 16\) or \(N, 8, 1, 16\)"
    mistake(9, text, "run", double_tw, "--inputs", tmp_path / "in.npz", "-o", tmp_path / "out.npz")


@pytest.mark.parametrize("keep", [0, 10, 500, -40])
def test_truncated_program_file(mistake, double_tw, tmp_path, keep):
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 1, 16), np.int32))
    broken = tmp_path / "broken.tw"
    broken.write_bytes(double_tw.read_bytes()[:keep])
    damaged = r"not a tilewright program, or a damaged one \(.+\)" if keep else "is an empty file; .*"
    text = rf"{re.escape(str(broken))}: {damaged}"
    mistake(6, text, "run", broken, "--inputs", tmp_path / "in.npz")
    mistake(6, text, "verify", broken)
    mistake(6, text, "disasm", broken)
    mistake(6, r".*in\.npz: is a file of arrays \(\.npz\); give a compiled program, .*", "verify", tmp_path / "in.npz")


@pytest.mark.parametrize("keep", [0, 10, 500, -40])
def test_truncated_model_file(no_program, tmp_path, keep):
    pytest.importorskip("tvm")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(DIGITS.read_bytes()[:keep])
    no_program(6, rf"{re.escape(str(broken))}: .+", broken)


def test_missing_files(mistake, no_program, double_tw, tmp_path):
    text = r".*missing\.\w+: no such file.*"
    no_program(6, text, tmp_path / "missing.onnx")
    no_program(6, text, f"{tmp_path / 'missing.py'}:f")
    mistake(6, text, "run", double_tw, "--inputs", tmp_path / "missing.npz")
    mistake(6, text, "verify", tmp_path / "missing.tw")
    mistake(6, text, "disasm", tmp_path / "missing.npz")
    text = r".*missing\.json: no such file; give a preset .*"
    no_program(6, text, DIGITS, "--config", "missing.json")


def test_a_folder_in_place_of_a_file(mistake, no_program, double_tw, tmp_path):
    folder = tmp_path / "folder.onnx"
    folder.mkdir()
    no_program(6, r".*folder\.onnx: is a folder; give a network, .*", folder)
    mistake(6, r".*: holds no pictures; give files that end in .*", "run", double_tw, "--inputs", folder)


def test_a_program_of_another_configuration(mistake, double_tw, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.zeros((8, 1, 16), np.int32))
    text = (
        r".*double\.tw was compiled for pynq_z1 \(fingerprint [0-9a-f]{16}\), not for tiny \([0-9a-f]{16}\); "
        "leave the configuration out or compile again"
    )
    mistake(8, text, "run", double_tw, "--inputs", tmp_path / "in.npz", "--config", "tiny")


def test_a_loop_that_is_not_affine(no_program, scheduled):
    text = r"acc\[.*i \* i.* is not an affine function of the instruction's loops; index by sums of .*"
    no_program(10, text, f"{scheduled}:squares")


def test_an_output_path_that_cannot_be_written(mistake, double_tw, tmp_path):
    """Said before the long work: the inputs and sources of these do not even exist."""
    (tmp_path / "folder").mkdir()
    missing, inputs = tmp_path / "missing.onnx", tmp_path / "missing.npz"
    text = r".*none/x: folder .*none does not exist; make it first"
    mistake(6, text, "compile", missing, "-o", tmp_path / "none" / "x")
    mistake(6, text, "run", double_tw, "--inputs", inputs, "-o", tmp_path / "none" / "x")
    mistake(6, ".*folder: is a folder; give a file name", "compile", missing, "-o", tmp_path / "folder")


def test_an_error_in_the_users_own_source(no_program, recorded, tmp_path):
    line = RECORDED.splitlines().index("    return undefined") + 1
    text = rf".*recorded\.py:{line}: NameError: name 'undefined' is not defined"
    no_program(10, text, f"{recorded}:broken")
    no_program(6, r".*recorded\.py: has no 'nothing'; its functions are overflow, field, broken", f"{recorded}:nothing")
    no_program(5, r".*recorded\.py: name what to compile, as in .*recorded\.py:schedule", recorded)
    (tmp_path / "m.h5").write_bytes(b"\xff" * 30)
    no_program(5, r".*m\.h5: unknown kind of network; must be one of .*", tmp_path / "m.h5")


def test_the_process_itself_ends_with_that_status_and_line(recorded, tmp_path):
    code = "from tilewright.cli.main import main; main()"
    command = [sys.executable, "-c", code, "compile", f"{recorded}:field", "-o", str(tmp_path / "x.tw")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert done.stderr == "tilewright: error: LOAD.x_stride = 70000: outside 0..65535 (16 bits)\n"
    assert done.stdout == ""
