"""`tilewright estimate` as a command: text, JSON, mistakes."""

import json
from pathlib import Path

import pytest

from tilewright.apps.explore.area import clock_of
from tilewright.hw.config import PRESETS, load_config

NET = str(Path(__file__).parents[1] / "data/networks/classifier.tflite")


def test_text(tilewright):
    done = tilewright("estimate", "--config", "pynq_z1")
    assert done.status == 0, done.err
    assert (
        "LUT" in done.out
        and "not known" in done.out
        and "by rule" in done.out
        and f"clock: {clock_of(PRESETS['pynq_z1'])[0]:.0f} MHz before placement, which routing" in done.out
    )
    (dsp,) = (line.split() for line in done.out.splitlines() if line.startswith(" DSP"))
    assert dsp == ["DSP", "166", "by", "rule", "75.5", "%"]  # of 220
    assert "loads 800 MB/s, stores 800, together 1,600" in done.out and "cycles" not in done.out


def test_a_network_and_a_configuration_beyond_the_fit(tilewright, tmp_path):
    config = tmp_path / "wide.json"
    config.write_text(json.dumps({"block_in": 32, "block_out": 32}))
    done = tilewright("estimate", NET, "--config", config)
    assert done.status == 0, done.err
    assert "cycles simulated by the timing model" in done.out and "MB/s used" in done.out
    assert "its error is not known: block_in 32 (4 to " in done.out
    assert "does not fit: needs" in done.out and f"+/- {clock_of(load_config(str(config)))[1]:.0f} MHz" in done.out


def test_json(tilewright):
    found = json.loads(tilewright("estimate", NET, "--config", "tiny", "--json").out)
    assert found["area"].keys() == {"lut", "ff", "bram", "dsp"}
    assert (
        found["area"]["lut"] > 10_000
        and found["fmax_estimate_mhz"] == clock_of(PRESETS["tiny"])[0]
        and found["cycles"] > 0
    )
    assert json.loads(tilewright("estimate", "--config", "tiny", "--json").out)["cycles"] is None


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["none.tflite"], 6, "none.tflite"),
        (["--config", "none"], 3, "unknown preset 'none'"),
        (["--dram", "none"], 3, "unknown memory 'none'"),
        (["--mhz", "0"], 2, "--mhz"),
    ],
)
def test_mistakes(refused, options, status, text):
    refused(status, text, "estimate", *options)
