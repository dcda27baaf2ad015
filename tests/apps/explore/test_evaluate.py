"""apps/explore: figures of a configuration with and without a network, and the workers that measure them."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children, synchronize
from pathlib import Path

import pytest

from tilewright.apps.explore import cluster
from tilewright.apps.explore import evaluate as module
from tilewright.apps.explore.area import area_of, clock_of
from tilewright.apps.explore.evaluate import INFEASIBLE, energy_uj, estimate, evaluate, job_of, misfit
from tilewright.compiler.frontend import import_model
from tilewright.compiler.network import compile_for
from tilewright.compiler.target.host import HostModel
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import BoardError, FileError, UnsupportedError
from tilewright.sim.dram import PRESETS as MEMORIES
from tilewright.sim.timing import predict

NETWORK = str(Path(__file__).parents[2] / "data/networks/classifier.tflite")
MEMORY = MEMORIES["zynq_hp4"]


def test_each_part_adds_up():
    parts = [energy_uj(1e6, 0, 0, 0), energy_uj(0, 1e6, 0, 0), energy_uj(0, 0, 100, 0), energy_uj(0, 0, 0, 100)]
    assert all(part > 0 for part in parts)
    assert energy_uj(1e6, 1e6, 100, 100) == pytest.approx(sum(parts))
    assert parts[3] > parts[2], "the host works beside the logic at rest"


@pytest.mark.circuit
def test_figures_are_those_of_the_parts():
    cfg = PRESETS["tiny"]
    found = evaluate(job_of([NETWORK, NETWORK], cfg, MEMORY, 50))
    compiled = compile_for(import_model(NETWORK), cfg)
    cycles = sum(predict(s.launch, dram=MEMORY).cycles for s in compiled.executable.launches)
    host = 1e6 * compiled.host_seconds(HostModel())
    assert found["networks"][NETWORK]["cycles"] == cycles and found["cycles"] == cycles, "a file counts once"
    assert found["latency_us"] == pytest.approx(cycles / 50 + host)
    assert (found["bram"], found["dsp"]) == (area_of(cfg).bram, area_of(cfg).dsp)
    assert found["energy_uj"] > 0


def test_a_larger_clock_is_faster():
    slow, fast = (evaluate(job_of([NETWORK], PRESETS["tiny"], MEMORY, mhz)) for mhz in (50, 100))
    assert fast["cycles"] == slow["cycles"] and fast["latency_us"] < slow["latency_us"]


def test_what_does_not_fit_has_a_reason():
    large = PRESETS["pynq_z1"].replace(wgt_bytes=1 << 20, inp_bytes=1 << 13)
    assert evaluate(job_of([NETWORK], large, MEMORY, 100)) == {INFEASIBLE: "needs 306 BRAM, of 140"}
    found = estimate(large.replace(block_in=64, block_out=64, wgt_bytes=1 << 22), MEMORY, 100)
    assert "needs" in found["misfit"] and found["outside"] and estimate(PRESETS["tiny"], MEMORY, 100)["outside"] == []
    ports = PRESETS["pynq_z1"].replace(store_ports=2)
    assert "Config.store_ports = 2" in misfit(ports, area_of(ports))


def test_another_file_on_the_worker(tmp_path):
    copy = tmp_path / "net.tflite"
    copy.write_bytes(Path(NETWORK).read_bytes())
    job = job_of([str(copy)], PRESETS["tiny"], MEMORY, 100)
    copy.unlink()
    with pytest.raises(FileError, match="is missing or another file here"):
        evaluate(job)


def test_without_a_network():
    found = estimate(PRESETS["pynq_z1"], MEMORY, 100)
    area = area_of(PRESETS["pynq_z1"])
    assert found["area"] == {"lut": area.lut, "ff": area.ff, "bram": area.bram, "dsp": area.dsp}
    assert found["area_error"]["bram"] == found["area_error"]["dsp"] == 0 < found["area_error"]["lut"]
    assert found["cycles"] is None and found["latency_us"] is None and "used" not in found["bandwidth"]
    assert found["misfit"] == "" and found["fmax_estimate_mhz"] == clock_of(PRESETS["pynq_z1"])[0]


@pytest.mark.circuit
def test_with_a_network_as_exploration_measures_it():
    found = estimate(PRESETS["tiny"], MEMORY, 50, NETWORK)
    point = evaluate(job_of([NETWORK], PRESETS["tiny"], MEMORY, 50))
    assert {key: found[key] for key in ("cycles", "host_us", "latency_us")} == {
        key: point[key] for key in ("cycles", "host_us", "latency_us")
    }
    assert {key: point[key] for key in ("lut", "ff", "bram", "dsp")} == found["area"]
    assert 0 < found["bandwidth"]["used"] <= found["bandwidth"]["both"]


def test_ports_and_memory_limit_the_bandwidth():
    two = PRESETS["pynq_z1"].replace(load_ports=2)
    rates = {"port": 0.8e9, "load": 1.6e9, "store": 0.8e9, "both": 2.4e9}
    assert estimate(two, MEMORY, 100)["bandwidth"] == pytest.approx(rates)


def test_figures_are_kept_by_all_that_they_depend_on(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def measured(source, config, dram, mhz):
        asked.append((config.name, dram.latency, mhz))
        return {"cycles": len(asked), "host_us": 1.0, "latency_us": 2.0, "dram_bytes": 8}

    monkeypatch.setattr(module, "network_figures", measured)
    slow = MEMORY.replace(latency=200)
    several = [("tiny", MEMORY, 50), ("pynq_z1", MEMORY, 50), ("tiny", slow, 50), ("tiny", MEMORY, 60)]
    for _ in range(2):
        found = [estimate(PRESETS[name], dram, mhz, NETWORK)["cycles"] for name, dram, mhz in several]
        assert found == [1, 2, 3, 4] and len(asked) == 4
    for file in (tmp_path / "tilewright/figures").iterdir():
        file.write_text('{"cycles": 7}')
    assert estimate(PRESETS["tiny"], MEMORY, 50, NETWORK)["cycles"] == 5


@pytest.mark.circuit
def test_kept_figures_need_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = estimate(PRESETS["tiny"], MEMORY, 50, NETWORK)["cycles"]
    script = f"""
import sys
from tilewright.apps.explore.evaluate import estimate
from tilewright.hw.config import PRESETS
from tilewright.sim.dram import PRESETS as MEMORIES
print(estimate(PRESETS["tiny"], MEMORIES["zynq_hp4"], 50, {NETWORK!r})["cycles"], "tvm" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(first), "False"]


SECONDS = 60  # that workers may take to start


def test_one_worker_is_this_process():
    with cluster.workers(1) as pool:
        assert pool is None


def test_without_dask_there_are_processes(monkeypatch):
    monkeypatch.setattr(cluster, "_has_dask", lambda: False)
    with cluster.workers(2) as pool:
        assert pool is not None and pool.submit(os.getpid).result() != os.getpid()


@pytest.mark.parametrize("dask", [True, False])
def test_without_semaphores_nothing_is_started(monkeypatch, dask):
    """As where /dev/shm is read-only: Dask's workers would never start, and never end."""

    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(synchronize.SemLock, "__init__", refused)
    monkeypatch.setattr(cluster, "_has_dask", lambda: dask)
    for start in (lambda: cluster.workers(2).__enter__(), *([lambda: cluster.begin(2, None, [])] if dask else [])):
        with pytest.raises(UnsupportedError, match="Read-only file system.*make /dev/shm writable, or use one process"):
            start()
    assert not active_children()


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT", 1.0)
    with pytest.raises(BoardError, match="scheduler tcp://127.0.0.1:1: does not answer"):
        cluster.workers(1, "tcp://127.0.0.1:1").__enter__()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing():
    pytest.importorskip("distributed")
    with cluster.workers(2) as pool:
        assert pool is not None
        victim = pool.submit(os.getpid).result(SECONDS)
        futures = [pool.submit(time.sleep, 0.05) for _ in range(40)]
        os.kill(victim, signal.SIGKILL)
        assert [future.result(SECONDS) for future in futures] == [None] * 40


BEGUN = """
import os, signal
from tilewright.apps.explore import cluster

if __name__ == "__main__":
    cluster.begin(2, None, ["tilewright.sim.timing"])
    with cluster.workers(2) as pool:
        asked = lambda: __import__("sys").modules.get("tilewright.sim.timing") is not None
        assert pool.submit(asked).result(60)
        os.kill(pool.submit(os.getpid).result(60), signal.SIGKILL)
        assert all([pool.submit(asked).result(60) for _ in range(4)])
"""


@pytest.mark.slow
def test_workers_have_what_was_imported_before_they_began(tmp_path):
    """In a process of its own: others of this one may have begun without it. One that is started again has it, too."""
    pytest.importorskip("distributed")
    script = tmp_path / "begun.py"
    script.write_text(BEGUN)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=4 * SECONDS)
    assert done.returncode == 0, done.stderr


def test_nothing_begins_for_one_worker_or_a_scheduler(monkeypatch):
    monkeypatch.setattr(cluster.forkserver, "ensure_running", lambda: pytest.fail("it began"))
    cluster.begin(1, None, [])
    cluster.begin(2, "tcp://127.0.0.1:1", [])


@pytest.mark.slow
def test_a_scheduler_of_another_process():
    distributed = pytest.importorskip("distributed")
    there = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with there, cluster.workers(1, there.scheduler_address) as pool:
        assert pool is not None and pool.submit(os.getpid).result(SECONDS) != os.getpid()
