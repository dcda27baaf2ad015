"""cli/serve.py: the command as it is started; what it serves is tested in tests/boards/test_server.py."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("grpc")


def start(device, *arguments):
    # what starts the tests may ignore the interrupt, as shells do for what runs in the background
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from tilewright.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "--on", device, "--port", "0", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.parametrize("device, end", [("model", signal.SIGINT), ("timing", signal.SIGTERM)])
def test_it_serves_until_it_is_ended(tilewright, double_tw, tmp_path, monkeypatch, device, end):
    """A command of the same user finds the token that the server keeps."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    serving = start(device, "--json")
    assert serving.stdout and serving.stderr
    try:
        text = ""
        while not text.endswith("\n}\n"):
            text += serving.stdout.readline()
        facts = json.loads(text)
        assert (facts["device"], facts["config"], facts["guard"]) == (device, "pynq_z1", "token")
        kept = tmp_path / "tilewright" / f"{facts['port']}.token"
        assert facts["token_file"] == str(kept) and kept.stat().st_mode & 0o777 == 0o600
        assert facts["limits"]["held_bytes"] == 4 * facts["limits"]["max_bytes"]
        np.savez(tmp_path / "x.npz", x=np.ones((8, 1, 16), np.int32))
        there = ("--on", "board", "--host", f"{facts['address']}:{facts['port']}")
        done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", *there)
        assert (done.status, done.err) == (0, "")
        with np.load(tmp_path / "y.npz") as y:
            assert (y["outputs"] == 2).all()
        serving.send_signal(end)
        assert serving.wait(30) == 0
        assert not kept.exists()
        assert serving.stderr.read() == ""
    finally:
        serving.kill()
        serving.wait()
        serving.stdout.close()
        serving.stderr.close()


@pytest.mark.parametrize(
    "arguments, status, text",
    [
        (["--listen", "0.0.0.0"], 3, "other machines can reach 0.0.0.0: add --token-file"),
        (["--tls-cert", "c"], 3, "--tls-cert and --tls-key: give both or neither"),
        (["--tls-cert", "c", "--tls-key", "k"], 6, "c: no such file; give a certificate or key, PEM"),
        (["--token-file", "none"], 6, "none: the token cannot be read"),
        (["--on", "fpga"], 5, "unknown device 'fpga'"),
        (["--config", "moon"], 3, "unknown preset 'moon'"),
        (["--on", "model", "--bitstream", "x.bit"], 5, "device 'model' is not a board"),
        (["--on", "board"], 11, "pynq is not installed"),
    ],
)
def test_mistakes(refused, no_pynq, arguments, status, text):
    refused(status, text, "serve --port 0", *arguments)


def test_it_shows_what_it_allows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = ("--max-mb", 3, "--memory-mb", 700, "--max-seconds", 5, "--queue", 7, "--idle-seconds", 2.5)
    serving = start("model", *options)
    assert serving.stdout and serving.stderr
    try:
        lines = [serving.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("serving model (pynq_z1) at 127.0.0.1:") and "token; end with Ctrl-C" in lines[0]
        assert lines[1].startswith(f"the token is in {tmp_path}")
        assert lines[2] == (
            "a request has up to 3 MB, all that wait 12 MB; a job 700 MB and 5 s; 7 jobs wait; "
            "a request that brings nothing ends after 2.5 s\n"
        )
    finally:
        serving.terminate()
        serving.communicate()


def test_a_token_that_other_users_can_read(tilewright, tmp_path):
    (tmp_path / "token").touch(0o644)
    (tmp_path / "token").chmod(0o644)
    (tmp_path / "token").write_text("0123456789abcdef-secret")
    done = tilewright("serve", "--on", "model", "--port", "0", "--token-file", tmp_path / "token")
    assert done.status == 6 and "other users can use this token (mode 0644, 0600 is allowed)" in done.err
