"""What a configuration takes and does, without synthesis and without a device: area, clock, bandwidth, cycles."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...compiler.cache import figures_file, read_json, write_json
from ...compiler.cost import bandwidths
from ...compiler.frontend.source import check_kind, contract_of, read_source
from ...hw.config import Config
from ...sim.dram import Dram
from .area import AVAILABLE, area_of, clock_of, model, outside
from .evaluate import misfit, network_figures

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
    """Those of `network_figures`, from the cache or into it."""
    check_kind(network)
    source = read_source(network)
    file = figures_file(source.digest, config, {"dram": asdict(dram), "mhz": mhz})
    figures = read_json(file)
    if not isinstance(figures, dict) or not {*_FIGURES, "dram_bytes"} <= figures.keys():
        figures = network_figures(source, config, dram, mhz)
        write_json(file, figures, _MOST_FILES)
    return figures
