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
    command = [sys.executable, "-c", code, "serve", "--on", device, "--port", "0", "--json", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.parametrize("device, end", [("model", signal.SIGINT), ("timing", signal.SIGTERM)])
def test_it_serves_until_it_is_ended(tilewright, double_tw, tmp_path, device, end):
    serving = start(device)
    assert serving.stdout and serving.stderr
    try:
        text = ""
        while not text.endswith("}\n"):
            text += serving.stdout.readline()
        facts = json.loads(text)
        assert (facts["device"], facts["config"], facts["guard"]) == (device, "pynq_z1", "no token")
        np.savez(tmp_path / "x.npz", x=np.ones((8, 1, 16), np.int32))
        there = ("--on", "board", "--host", f"{facts['address']}:{facts['port']}")
        done = tilewright("run", double_tw, "--inputs", tmp_path / "x.npz", "-o", tmp_path / "y.npz", *there)
        assert (done.status, done.err) == (0, "")
        with np.load(tmp_path / "y.npz") as y:
            assert (y["outputs"] == 2).all()
        serving.send_signal(end)
        assert serving.wait(30) == 0
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
        (["--tls-cert", "c", "--tls-key", "k"], 6, "c: No such file"),
        (["--token-file", "none"], 6, "none: the token cannot be read"),
        (["--on", "fpga"], 5, "unknown device 'fpga'"),
        (["--config", "moon"], 3, "unknown preset 'moon'"),
        (["--on", "model", "--bitstream", "x.bit"], 5, "device 'model' is not a board"),
        (["--on", "board"], 11, "pynq is not installed"),
    ],
)
def test_mistakes(tilewright, no_pynq, arguments, status, text):
    done = tilewright("serve", "--port", "0", *arguments)
    assert done.status == status and text in done.err
