"""One configuration measured on networks: cycles, host time, area, energy. Runs in a worker; plain values travel."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...hw.circuit import check_buildable
from ...hw.config import Config
from ...hw.errors import FileError, TilewrightError
from ...sim.dram import Dram
from .area import AVAILABLE, Area, area_of, clock_of
from .energy import energy_uj

if TYPE_CHECKING:
    from ...compiler.frontend.source import Source

INFEASIBLE = "infeasible"  # the key of a reason, in place of figures
# modules that `evaluate` imports when it is first called, and this one
MODULES = tuple(
    f"tilewright.{name}"
    for name in ("apps.explore.evaluate", "compiler.frontend.tflite.importer", "compiler.network", "sim.timing")
)


@dataclass(frozen=True)
class Job:
    """What a worker measures: files of networks with the digests of their contents, a configuration, a memory."""

    networks: tuple[tuple[str, str], ...]
    config: Mapping[str, Any]
    dram: Mapping[str, Any]
    mhz: int


def job_of(networks: Sequence[str], config: Config, dram: Dram, mhz: int) -> Job:
    """The job of `networks` on `config`. Raises `FileError` for a file that cannot be read."""
    return Job(tuple((path, _digest(path)) for path in networks), config.to_dict(), asdict(dram), mhz)


def _digest(path: str) -> str:
    from ...compiler.frontend.source import read_source

    return hashlib.sha256(repr(read_source(path).digest).encode()).hexdigest()


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
        if not Path(path).is_file() or _digest(path) != digest:
            raise FileError(f"{path}: is missing or another file here; workers need the files of the networks")
        try:
            found[path] = network_figures(path, config, Dram(**job.dram), job.mhz)
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


def network_figures(model: str | Source, config: Config, dram: Dram, mhz: int) -> dict[str, float]:
    """Cycles, microseconds, bytes moved and energy of one inference of a network, a file or what was read of it.

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
