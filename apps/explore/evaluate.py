"""Figures of a configuration without synthesis and without a device: area, clock, bandwidth, cycles and energy.

`estimate` is for one configuration, `evaluate` for a point of an exploration, in a worker: plain values travel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...compiler.cache import figures_file, read_json, write_json
from ...compiler.frontend.source import Source, contract_of, read_source
from ...hw.circuit import check_buildable
from ...hw.config import Config
from ...hw.errors import FileError, TilewrightError
from ...sim.dram import Dram, bandwidths
from .area import AVAILABLE, Area, area_of, clock_of, model, outside

PJ_PER_MAC = 0.3  # an int8 product 0.2 pJ, its sum in 32 bits 0.1
PJ_PER_DRAM_BYTE = 240.0  # 1.3 to 2.6 nJ for 64 bits
REST_WATT = 0.25  # programmable logic, configured
HOST_WATT = 0.5  # the host while it computes


def energy_uj(macs: float, dram_bytes: float, device_us: float, host_us: float) -> float:
    """Microjoules of an inference of `macs` multiply-accumulates and `dram_bytes` moved.

    >>> round(energy_uj(12.5e6, 1e6, 690, 30), 1)
    438.8
    """
    dynamic = (PJ_PER_MAC * macs + PJ_PER_DRAM_BYTE * dram_bytes) * 1e-6
    return dynamic + REST_WATT * (device_us + host_us) + HOST_WATT * host_us


Shapes = Mapping[str, tuple[int, ...]]
INFEASIBLE = "infeasible"  # the key of a reason, in place of figures
# modules that `evaluate` imports when it is first called, and this one
MODULES = tuple(
    f"tilewright.{name}"
    for name in ("apps.explore.evaluate", "compiler.frontend.tflite.importer", "compiler.network", "sim.timing")
)


@dataclass(frozen=True)
class Job:
    """A measurement for a worker: files of networks with their digests, a configuration, a memory.

    `shapes` are those of inputs with open sizes, by name, in every network.
    """

    networks: tuple[tuple[str, str], ...]
    config: Mapping[str, Any]
    dram: Mapping[str, Any]
    mhz: int
    shapes: Shapes = field(default_factory=dict)


def job_of(networks: Sequence[str], config: Config, dram: Dram, mhz: int, shapes: Shapes = MappingProxyType({})) -> Job:
    """The job of `networks` on `config`. Raises as `read_source`."""
    files = tuple((path, _digest(read_source(path, shapes=shapes))) for path in networks)
    return Job(files, config.to_dict(), asdict(dram), mhz, dict(shapes))


def _digest(source: Source) -> str:
    return hashlib.sha256(repr(source.digest).encode()).hexdigest()


def evaluate(job: Job) -> dict[str, Any]:
    """The figures of a job, or `{"infeasible": why}` where the configuration cannot run it or does not fit the FPGA.

    `latency_us` is the sum over the networks of one inference, launches and host; `cycles` those of all launches;
    `networks` both by file; `lut`, `ff`, `bram` and `dsp` the area (`area_of`), `clock_ns` the estimated period
    (`clock_of`), `energy_uj` by a model. Raises `FileError` where a file is another one than the job means.
    """
    config = Config.from_dict(dict(job.config))
    area = area_of(config)
    if reason := misfit(config, area):
        return {INFEASIBLE: reason}
    found = {}
    for path, digest in job.networks:
        source = read_source(path, shapes=job.shapes) if Path(path).is_file() else None
        if source is None or _digest(source) != digest:
            raise FileError(f"{path}: is missing or another file here; workers need the files of the networks")
        try:
            found[path] = network_figures(source, config, Dram(**job.dram), job.mhz)
        except TilewrightError as exc:
            return {INFEASIBLE: f"{Path(path).name}: {type(exc).__name__}: {exc}"}
    totals = {key: sum(one[key] for one in found.values()) for key in ("cycles", "host_us", "latency_us", "energy_uj")}
    return {**totals, **asdict(area), "clock_ns": 1e3 / clock_of(config)[0], "networks": found}


def misfit(config: Config, area: Area) -> str:
    """Why `config` cannot be built on the FPGA, "" where it can."""
    try:
        check_buildable(config)
    except TilewrightError as exc:
        return str(exc)
    for name, there in asdict(AVAILABLE).items():
        if (wanted := getattr(area, name)) > there:
            about = "about " if name in ("lut", "ff") else ""
            return f"needs {about}{wanted:,.0f} {name.upper()}, of {there:,.0f}"
    return ""


def network_figures(model: Source, config: Config, dram: Dram, mhz: int) -> dict[str, float]:
    """Cycles, microseconds, bytes moved and energy of one inference of a network.

    It is compiled for `dram`, without the cache on disk: explorations would drive everything else out of it. Raises the
    errors of the compiler.
    """
    from ...compiler.frontend import import_model
    from ...compiler.network import compile_for
    from ...compiler.target.host import HostModel
    from ...sim.timing import predict

    compiled = compile_for(import_model(model), config, dram=dram)
    launches = compiled.executable.launches
    timings = [predict(step.launch, dram=dram) for step in launches]
    cycles = sum(timing.cycles for timing in timings)
    host_us = 1e6 * compiled.host_seconds(HostModel())
    moved = sum(count for timing in timings for name, count in timing.counters.items() if name.endswith("_BYTES"))
    return {
        "cycles": cycles,
        "host_us": host_us,
        "latency_us": cycles / mhz + host_us,
        "dram_bytes": moved,
        "energy_uj": energy_uj(sum(step.macs for step in launches), moved, cycles / mhz, host_us),
    }


_FIGURES = ("cycles", "host_us", "latency_us")
_MOST_FILES = 4096  # figures in the cache; the least recently used are removed


def estimate(config: Config, dram: Dram, mhz: int, network: str | None = None) -> dict[str, Any]:
    """The figures of `config` at `mhz` with the memory `dram`, and of one inference of the file `network`.

    `area` by the rules and the fit of area.py, with `area_error`, the largest relative error at configurations that
    were held out of the fit; `outside` names fields beyond it. `fmax_estimate_mhz` with `fmax_error_mhz`.
    `bandwidth`: bytes per second that one port, loads, stores and both can move, and that the network does move.
    `contract`, `cycles`, `latency_us` and `host_us` are None without a network; a cache on disk keeps figures. Raises
    `UnsupportedError` where there is no circuit of `config`, and the errors of the compiler.
    """
    area = area_of(config)
    mhz_of, mhz_error = clock_of(config)
    found = {
        "config": config.to_dict(),
        "area": asdict(area),
        "area_error": {**model()["error"], "bram": 0.0, "dsp": 0.0},
        "available": asdict(AVAILABLE),
        "outside": outside(config),
        "misfit": misfit(config, area),
        "fmax_estimate_mhz": mhz_of,
        "fmax_error_mhz": mhz_error,
        "mhz": mhz,
        "bandwidth": {name: n * mhz * 1e6 for name, n in bandwidths(config, dram).items()},
        "network": network,
        "contract": None if network is None else contract_of(network),
        "cycles": None,
        "host_us": None,
        "latency_us": None,
    }
    if network is not None:
        figures = _kept_figures(network, config, dram, mhz)
        found |= {key: figures[key] for key in _FIGURES}
        found["bandwidth"]["used"] = figures["dram_bytes"] / figures["cycles"] * mhz * 1e6 if figures["cycles"] else 0.0
    return found


def _kept_figures(network: str, config: Config, dram: Dram, mhz: int) -> dict[str, float]:
    """The result of `network_figures`, which is kept in the cache."""
    source = read_source(network)
    file = figures_file(source.digest, config, {"dram": asdict(dram), "mhz": mhz})
    figures = read_json(file)
    if not isinstance(figures, dict) or not {*_FIGURES, "dram_bytes"} <= figures.keys():
        figures = network_figures(source, config, dram, mhz)
        write_json(file, figures, _MOST_FILES)
    return figures
