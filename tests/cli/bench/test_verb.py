"""cli/bench/verb.py, on its smallest layers."""

import json
import re

import pytest


def test_layers_are_exact_and_add_up(printed):
    pytest.importorskip("tvm")
    found = printed("bench --layer C8 --layer C11")
    assert [row["name"] for row in found["layers"]] == ["C8", "C11"]
    assert all(row["exact"] for row in found["layers"])
    assert found["total"]["macs"] == 2 * 6422528
    assert found["total"]["seconds"] == pytest.approx(sum(row["seconds"] for row in found["layers"]))
    assert list(found["time_share"]) == ["gemm", "alu", "transfer", "rest"]
    assert sum(found["time_share"].values()) == pytest.approx(1)
    assert min(found["time_share"].values()) > 0  # the modules of the model are found
    assert (found["config"], found["threads"], found["runs"]) == ("pynq_z1", 1, 5)


def test_the_table_states_threads_and_where_time_goes(tilewright, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    done = tilewright("bench", "--layer", "C11")
    configuration, times, contract = done.out.splitlines()[-3:]
    assert configuration == "configuration pynq_z1, batch 1, matrix products on 1 thread"
    assert times.startswith("time goes to GEMM ")
    assert contract == "rounding contract: double (two roundings, as TensorFlow Lite Micro)"


def test_kernels_that_the_environment_chooses_are_named(tilewright, monkeypatch):
    pytest.importorskip("tvm")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    done = tilewright("bench", "--layer", "C11")
    assert done.out.splitlines()[-3].endswith("on 1 thread, with the kernels of OPENBLAS_CORETYPE=Haswell")


def test_an_unknown_layer(tilewright):
    pytest.importorskip("tvm")
    done = tilewright("bench", "--layer", "C99")
    assert done.status == 5
    assert done.err.startswith("tilewright: error: unknown layer 'C99'; must be one of C2, C3, ")


def test_cycles_of_the_circuit(tilewright):
    pytest.importorskip("tvm")
    pytest.importorskip("amaranth")
    done = tilewright("bench", "--on", "rtl", "--config", "tiny", "--layer", "C11", "--json")
    if done.status == 5:
        pytest.skip(done.err)  # names the tool that is missing
    found = json.loads(done.out)
    (row,) = found["layers"]
    assert row["exact"] and (found["config"], found["device"]) == ("tiny", "rtl")
    assert re.match(r"Verilator [0-9.]+ --cc -O3 .*; g[+][+] [0-9.]+ -O3 .*; built in [0-9]+ s$", found["build"])
    ideal = 6422528 / 16
    assert row["cycles"] > ideal
    assert row["utilisation"] == pytest.approx(ideal / row["cycles"])


def test_an_unknown_device(refused):
    refused(5, "unknown device 'fpga'", "bench --on fpga")
