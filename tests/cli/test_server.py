"""`run --on board --host`: a program on a server of this machine."""

import numpy as np
import pytest

pytest.importorskip("grpc")

from tests.boards.test_server import TOKEN, serving
from tilewright.hw.config import PRESETS


@pytest.fixture(scope="module")
def port():
    with serving(cfg=PRESETS["pynq_z1"], limits=None) as server:
        yield server.port


def private(path):
    path.touch(0o600)
    path.write_text(TOKEN)


@pytest.fixture
def inputs(tmp_path):
    x = np.random.default_rng(0).integers(-64, 64, (3, 8, 1, 16), dtype=np.int32)
    np.savez(tmp_path / "x.npz", inputs=x, outputs=(2 * x).astype(np.int8))
    private(tmp_path / "token")
    return tmp_path / "x.npz"


def test_a_program_runs_on_a_server(tilewright, double_tw, inputs, tmp_path, port):
    there = ("--on", "board", "--host", f"localhost:{port}", "--token-file", tmp_path / "token")
    done = tilewright("run", double_tw, "--inputs", inputs, "-o", tmp_path / "y.npz", *there)
    assert (done.status, done.err) == (0, "")
    assert "outputs equal to the file's: 3 of 3" in done.out and "3 inputs on board (pynq_z1)" in done.out
    with np.load(tmp_path / "y.npz") as y, np.load(inputs) as x:
        np.testing.assert_array_equal(y["outputs"], x["outputs"])


def test_doctor_checks_a_server(tilewright, inputs, tmp_path, port):
    done = tilewright("doctor", "--board", "--host", f"localhost:{port}", "--token-file", tmp_path / "token")
    assert done.status == 0 and "ok      self-test: 16 values are right" in done.out


def test_without_the_token(refused, double_tw, inputs, port):
    text = "wrong or missing token; give the server's token with --token-file"
    refused(11, text, "run --on board --host", f"localhost:{port}", double_tw, "--inputs", inputs)


def test_another_configuration(tilewright, double_py, tmp_path, port):
    np.savez(tmp_path / "x.npz", x=np.zeros((8, 1, 4), np.int32))
    private(tmp_path / "token")
    there = ("--on", "board", "--host", f"localhost:{port}", "--token-file", tmp_path / "token")
    done = tilewright("run", f"{double_py}:double", "--inputs", tmp_path / "x.npz", "--config", "tiny", *there)
    assert done.status == 8 and "is for tiny (fingerprint" in done.err and "has pynq_z1 (" in done.err


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--on", "model", "--host", "there"], "device 'model' is local; use --on board"),
        (["--token-file", "t"], "--token-file t: needs a server; add --on board --host NAME"),
        (["--tls-ca", "c"], "--tls-ca c: needs a server"),
        (["--bitstream", "x.bit"], "--bitstream x.bit: device 'model' is not a board; use --on board"),
        (["--on", "rtl", "--clock", "50"], "--clock 50.0: device 'rtl' is not a board"),
        (["--board", "kv260"], "--board kv260: device 'model' is not a board; use --on board"),
        (["--on", "board", "--host", "there", "--board", "kv260"], "--board: the server chooses them; give them to"),
        (
            ["--on", "board", "--host", "there", "--clock", "50"],
            "the server chooses them; give them to `tilewright serve`",
        ),
        (["--on", "board", "--waves", "x.fst"], "device 'board' has no waveforms"),
    ],
)
def test_options_that_do_not_belong_together(refused, double_tw, inputs, arguments, text):
    refused(5, text, "run", double_tw, "--inputs", inputs, *arguments)


def test_the_board_itself_where_there_is_none(refused, no_pynq, double_tw, inputs):
    run = ("run --on board --inputs", inputs, double_tw)
    refused(11, "pynq is not installed", *run, "--clock", "50", "--bitstream", "x.bit")
    refused(3, "Board.clock_mhz = 500.0: must be from 1 to 250", *run, "--clock", "500")
    refused(3, "Board.clock_mhz = 500.0: must be from 1 to 333", *run, "--clock", "500", "--board", "kv260")


def test_files_that_are_not_there(refused, double_tw, inputs):
    there = ("run --on board --host localhost:1", double_tw, "--inputs", inputs)
    refused(6, "none: the token cannot be read", *there, "--token-file", "none")
    refused(6, "none: no such file; give a certificate", *there, "--tls-ca", "none")


def test_what_is_missing_is_named(monkeypatch):
    import importlib.util

    from tilewright.cli.options import need_grpc
    from tilewright.hw.errors import UnsupportedError

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UnsupportedError, match=r"a remote board needs gRPC and protobuf, .* pip install 'tilewright\[board\]'"
    ):
        need_grpc()
