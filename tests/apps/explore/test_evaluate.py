"""apps/explore/evaluate.py: figures of a small network, reasons, other files."""

from pathlib import Path

import pytest

from tilewright.apps.explore.area import area_of
from tilewright.apps.explore.evaluate import INFEASIBLE, evaluate, job_of, misfit
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_for
from tilewright.compiler.target.host import HostModel
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError
from tilewright.sim.dram import PRESETS as MEMORIES
from tilewright.sim.timing import predict

MEMORY = MEMORIES["zynq_hp4"]


@pytest.fixture
def network():
    return str(Path(__file__).parents[2] / "data/networks/classifier.tflite")


def test_figures_are_those_of_the_parts(network):
    cfg = PRESETS["tiny"]
    found = evaluate(job_of([network, network], cfg, MEMORY, 50))
    compiled = compile_for(import_model(network), cfg)
    cycles = sum(predict(s.launch, dram=MEMORY).cycles for s in compiled.executable.launches)
    host = 1e6 * compiled.host_seconds(HostModel())
    assert found["networks"][network]["cycles"] == cycles and found["cycles"] == cycles, "a file counts once"
    assert found["latency_us"] == pytest.approx(cycles / 50 + host)
    assert (found["bram"], found["dsp"]) == (area_of(cfg).bram, area_of(cfg).dsp)
    assert found["energy_uj"] > 0


def test_a_larger_clock_is_faster(network):
    slow, fast = (evaluate(job_of([network], PRESETS["tiny"], MEMORY, mhz)) for mhz in (50, 100))
    assert fast["cycles"] == slow["cycles"] and fast["latency_us"] < slow["latency_us"]


def test_what_does_not_fit_has_a_reason(network):
    large = PRESETS["pynq_z1"].replace(wgt_bytes=1 << 20, inp_bytes=1 << 13)
    assert evaluate(job_of([network], large, MEMORY, 100)) == {INFEASIBLE: "needs 306 BRAM, of 140"}
    ports = PRESETS["pynq_z1"].replace(store_ports=2)
    assert "Config.store_ports = 2" in misfit(ports, area_of(ports))


def test_another_file_on_the_worker(network, tmp_path):
    copy = tmp_path / "net.tflite"
    copy.write_bytes(Path(network).read_bytes())
    job = job_of([str(copy)], PRESETS["tiny"], MEMORY, 100)
    copy.unlink()
    with pytest.raises(FileError, match="is missing or another file here"):
        evaluate(job)
