"""cli/options.py: options that several verbs share."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.options import (
    device_options,
    read_pem,
)
from tilewright.hw.errors import FileError, UnsupportedError
from tilewright.runtime.registry import describe_devices
from tilewright.sim.dram import PRESETS as MEMORIES

MODEL = str(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
DEVICE_LEADS = dict.fromkeys(["run", "replay", "bench"], "What executes the program:") | {
    "serve": "The device to serve:"
}


@pytest.mark.parametrize("verb", DEVICE_LEADS)
def test_every_verb_with_a_device_names_them_all(tilewright, verb):
    done = tilewright(verb, "--help")
    assert f"--on DEVICE {DEVICE_LEADS[verb]} {describe_devices()}. [default:" in " ".join(done.out.split())


@pytest.mark.parametrize("device", ["timing", "rtl"])
def test_the_memory_of_what_counts_cycles(device):
    assert device_options(device, None, (), "zynq_hp4,latency=7")["dram"] == MEMORIES["zynq_hp4"].replace(
        name="zynq_hp4,latency=7", latency=7
    )


@pytest.mark.parametrize(
    ("device", "text"), [("model", "counts no cycles"), ("spec", "counts no"), ("board", "has a memory of its own")]
)
def test_other_devices_refuse_a_memory(device, text):
    with pytest.raises(UnsupportedError, match=f"--dram ideal: device '{device}' {text}.*use --on timing or rtl"):
        device_options(device, None, (), "ideal")


def test_what_is_skipped_is_for_timing_alone():
    assert device_options("timing", None, ("alu",)) == {"skip": frozenset({"alu"})}
    assert device_options("timing", None) == {}
    with pytest.raises(UnsupportedError, match="--skip alu: device 'rtl' executes everything; use --on timing"):
        device_options("rtl", None, ("alu",))


def test_certificates_have_up_to_a_megabyte(tmp_path):
    path = tmp_path / "c.pem"
    path.write_bytes(bytes(1 << 20))
    assert len(read_pem(str(path))) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(FileError, match="has 1,048,577 bytes; at most 1,048,576 are allowed"):
        read_pem(str(path))


@pytest.mark.parametrize(
    "command",
    [
        ["compile", MODEL, "-o", "x.tw"],
        ["compile", MODEL, "-o", "c", "--emit", "c"],
        ["verify", "x.tw"],
        ["run", MODEL, "--inputs", "x.npz"],
        ["assign", MODEL],
        ["explain", MODEL],
        ["estimate", MODEL],
        ["tune", MODEL, "--trials", "1"],
    ],
    ids=lambda command: "-".join(command[::2]),
)
def test_verbs_say_how_a_network_rounds(tilewright, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    if command[0] == "run":
        np.savez("x.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    if command[0] == "verify":
        assert not tilewright("compile", MODEL, "-o", "x.tw").status
    done = tilewright(*command)
    assert done.status == 0 and "rounding contract: single (one rounding, as onnxruntime)" in done.out, done.err
    assert json.loads(tilewright(*command, "--json").out)["contract"] == "single"
    if "c" in command:
        assert "rounding contract single" in (tmp_path / "c" / "network.h").read_text().splitlines()[0]
