"""The JSON document of `tilewright bench`: one set of keys for every workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import report

if TYPE_CHECKING:
    from ...hw.config import Config
    from ...runtime.device import Stats
    from ...sim.dram import Dram


def facts(workload: str, cfg: Config, device: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The head of the document: `workload` on `device`, opened with `options`."""
    found = {"workload": workload, "config": cfg.name, "dram": memory(options).name, "device": device}
    return found | {"skip": sorted(options.get("skip", ()))}


def memory(options: Mapping[str, Any]) -> Dram:
    """The memory of a device that is opened with `options`."""
    from ...sim.dram import ZYNQ_HP

    return options.get("dram", ZYNQ_HP)


def row(cfg: Config, stats: Stats, *, macs: int, instructions: int, exact: bool) -> dict[str, Any]:
    """The keys of a layer's row after its `name` and `op`.

    `cycles` is None on a device without a clock, and so are the rates. `gemm_busy` and `other_busy` are the cycles that
    products of tiles, and ALU and depthwise micro-ops, take at one per cycle; `ideal` those of the layer's own `macs`.
    """
    gemm = stats.macs // cfg.macs_per_cycle
    found = {
        "cycles": stats.cycles,
        "gemm_busy": gemm,
        "other_busy": stats.uops - gemm,
        "load_bytes": stats.bytes_loaded.total(),
        "store_bytes": stats.bytes_stored.total(),
        "ideal": macs / cfg.macs_per_cycle,
        "macs": macs,
        "instructions": instructions,
        "exact": exact,
    }
    return found | rates(found)


def rates(row: dict[str, Any]) -> dict[str, float | None]:
    """Utilisation and bytes per cycle of `row`, that of a layer or a sum."""
    cycles, moved = row["cycles"], row["load_bytes"] + row["store_bytes"]
    if not cycles:
        return {"utilisation": None, "bytes_per_cycle": None}
    return {"utilisation": row["ideal"] / cycles, "bytes_per_cycle": moved / cycles}


def emit(about: dict[str, Any], rows: Sequence[dict[str, Any]], sums: dict[str, Any]) -> None:
    """Print the document: `about`, from `facts`, the layers' rows, and their sums."""
    report.emit_json(about | {"layers": rows} | sums)
