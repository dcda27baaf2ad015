"""Shared by the workloads of `tilewright bench`: the device, the row of a layer, the printed document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...compiler.graph import Graph, reference
from ...hw.config import Config
from ...hw.errors import UnsupportedError
from ...hw.isa import known_isa
from ...runtime.device import Device, Stats, open_device, program_stats
from ...runtime.executable import Executable
from ...runtime.launch import Launch
from ...runtime.loader import Loaded
from ...sim.dram import ZYNQ_HP, Dram
from ...sim.timing import predict
from .. import report
from ..profile import Profile

Found = TypeVar("Found")
Row = dict[str, Any]
SUMS = ("gemm_busy", "other_busy", "load_bytes", "store_bytes", "ideal", "macs", "instructions")  # keys that add up


@dataclass(frozen=True)
class Bench:
    """The request: the device `name` of configuration `cfg`, with `options` of `open_device`, and
    what to measure there; `profile` gets what runs.
    """

    cfg: Config
    name: str
    options: Mapping[str, Any]
    profile: Profile
    workload: str
    as_json: bool = False
    threads: int = 1
    compare: tuple[str, ...] = ()
    out: str | None = None

    @property
    def dram(self) -> Dram:
        """The device's memory."""
        return self.options.get("dram", ZYNQ_HP)

    @property
    def skip(self) -> frozenset[str]:
        """The units whose work takes no time."""
        return self.options.get("skip", frozenset())

    def open(self) -> Device:
        """The device."""
        return report.opened(open_device(self.name, self.cfg, **self.options))

    def run(self, what: str, executable: Executable, inputs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], Stats]:
        """(outputs by name, counts) of one run on a device of its own; in the profile as `what`."""
        with Loaded(executable, self.open()) as loaded:
            found = loaded.run(inputs)
            self.profile.add_run(executable, loaded.reports, what)
            return found, loaded.stats

    def each(self, names: Collection[str], known: Collection[str], measure: Callable[[str], Found]) -> Iterator[Found]:
        """Results of `measure` for `names`, by default for all `known`, while the display shows which is measured.

        Raises `UnsupportedError` for a name that is not `known`.
        """
        check_names(names, known)
        with report.progress("compiling and running", len(names or known)) as advance:
            for name in names or known:
                advance(0, name)
                yield measure(name)
                advance()

    def measured(self, what: str, graph: Graph, executable: Executable) -> tuple[Row, Stats]:
        """(keys of a row, counts) of one run of the network `graph`, compared with the golden interpreter."""
        rng = np.random.default_rng(1)
        inputs = {t.name: rng.integers(-128, 128, t.shape, np.int8) for t in graph.inputs}
        outputs, stats = self.run(what, executable, inputs)
        expected, _ = reference.run(graph, inputs)
        exact = all(np.array_equal(outputs[name], value) for name, value in expected.items())
        instructions = sum(len(step.launch.insn) for step in executable.launches)
        return row(self.cfg, stats, macs=graph.macs, instructions=instructions, exact=exact), stats

    def predict(self, what: str, launch: Launch) -> int:
        """The cycles of `launch` by the timing model, without values; in the profile as `what`."""
        timing = predict(launch, dram=self.dram, skip=self.skip)
        stats = program_stats(known_isa(launch.cfg), launch.insn)
        stats.cycles, stats.counters, stats.timeline = timing.cycles, Counter(timing.counters), timing.timeline
        self.profile.add(what, launch, stats)
        return timing.cycles

    def finish(self, rows: Sequence[Row], show: Callable[[], None], about: Row, sums: Row, key: str = "layers") -> None:
        """Write the profile; print the JSON document, or what `show` prints, the rounding contract and the profile.

        The document has `about`, the `rows` under `key`, and the `sums`.
        """
        facts: Row = {"workload": self.workload, "config": self.cfg.name, "dram": self.dram.name, "device": self.name}
        facts |= {"contract": "double", "skip": sorted(self.skip)} | about
        found = {key: rows} | sums
        facts |= self.profile.write(self.workload, facts | found)
        if self.as_json:
            report.emit_json(facts | found)
            return
        show()
        report.say_contract(facts["contract"])
        self.profile.say(facts)


def row(cfg: Config, stats: Stats, *, macs: int, instructions: int, exact: bool) -> Row:
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


def rates(row: Row) -> dict[str, float | None]:
    """Utilisation and bytes per cycle of `row`, a layer or the sum of layers."""
    cycles, moved = row["cycles"], row["load_bytes"] + row["store_bytes"]
    if not cycles:
        return {"utilisation": None, "bytes_per_cycle": None}
    return {"utilisation": row["ideal"] / cycles, "bytes_per_cycle": moved / cycles}


def total(rows: Sequence[Row], *also: str) -> Row:
    """Sums of the rows, and of their keys `also`, each as often as `count` of the row says; and their rates."""
    clocked = rows[0]["cycles"] is not None
    found: Row = {"cycles": None}
    for key in ("cycles", *SUMS, *also)[not clocked :]:
        found[key] = sum(row.get("count", 1) * row[key] for row in rows)
    found["exact"] = all(row["exact"] for row in rows)
    return found | rates(found)


def check_names(names: Sequence[str] | Collection[str], known: Collection[str]) -> None:
    """Raise `UnsupportedError` for a layer that is not `known`."""
    for name in names:
        if name not in known:
            raise UnsupportedError(f"unknown layer {name!r}; must be one of {', '.join(known)}")
