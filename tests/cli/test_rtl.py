"""cli/rtl.py: the Verilog file."""

import json

import pytest


@pytest.fixture(autouse=True)
def tools():
    pytest.importorskip("amaranth")


@pytest.mark.circuit
def test_the_file_holds_the_top_module(tilewright, tmp_path):
    done = tilewright("rtl", "--config", "tiny", "-o", str(tmp_path / "core.v"), "--json")
    assert done.status == 0, done.err
    text = (tmp_path / "core.v").read_text()
    found = json.loads(done.out)
    assert found["top"] == "tilewright_tiny" and found["lines"] == len(text.splitlines())
    assert "module tilewright_tiny(" in text and "m_load0_araddr" in text


def test_an_output_that_cannot_be_written(refused, tmp_path):
    refused(6, "does not exist", "rtl --config tiny -o", str(tmp_path / "no" / "core.v"))


def test_a_configuration_is_not_overwritten(tilewright, tmp_path):
    path = tmp_path / "core.json"
    path.write_text("{}")
    done = tilewright("rtl", "--config", path, "-o", path)
    assert done.status == 6 and "is also --config" in done.err and path.read_text() == "{}"


def test_a_configuration_without_a_circuit(refused, tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"load_ports": 4, "axi_bits": 512}))
    refused(5, "load_ports", "rtl --config", str(path), "-o", str(tmp_path / "core.v"))
    assert not (tmp_path / "core.v").exists()
