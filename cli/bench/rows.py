"""What every workload of `tilewright bench` shares: what it runs on, and the keys of its JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ...hw.errors import UnsupportedError
from .. import report

if TYPE_CHECKING:
    import numpy as np

    from ...compiler.graph import Graph
    from ...hw.config import Config
    from ...runtime.device import Device, Stats
    from ...runtime.executable import Executable
    from ...runtime.launch import Launch
    from ...sim.dram import Dram
    from ..profile.files import Profile

Found = TypeVar("Found")
SUMS = ("gemm_busy", "other_busy", "load_bytes", "store_bytes", "ideal", "macs", "instructions")  # keys that add up


@dataclass(frozen=True)
class Bench:
    """What a workload runs on: the device `name` of configuration `cfg`, with `options` of `open_device`; `profile`
    gets what runs.
    """

    cfg: Config
    name: str
    options: Mapping[str, Any]
    profile: Profile

    @property
    def dram(self) -> Dram:
        """The device's memory."""
        from ...sim.dram import ZYNQ_HP

        return self.options.get("dram", ZYNQ_HP)

    @property
    def skip(self) -> frozenset[str]:
        """The units whose work takes no time."""
        return self.options.get("skip", frozenset())

    def open(self) -> Device:
        """The device."""
        from ...runtime.device import open_device

        return report.opened(open_device(self.name, self.cfg, **self.options))

    def run(self, what: str, executable: Executable, inputs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], Stats]:
        """(outputs by name, counts) of one run on a device of its own; in the profile as `what`."""
        from ...runtime.loader import Loaded

        with Loaded(executable, self.open()) as loaded:
            found = loaded.run(inputs)
            self.profile.add_run(executable, loaded.reports, what)
            return found, loaded.stats

    def each(self, names: Collection[str], measure: Callable[[str], Found]) -> Iterator[Found]:
        """What `measure` finds of each of `names`, while the display shows which."""
        with report.progress("compiling and running", len(names)) as advance:
            for name in names:
                advance(0, name)
                yield measure(name)
                advance()

    def measured(self, what: str, graph: Graph, executable: Executable) -> tuple[dict[str, Any], Stats]:
        """(keys of a row, counts) of one run of the network `graph`, compared with the golden interpreter."""
        import numpy as np

        from ...compiler.graph import reference

        rng = np.random.default_rng(1)
        inputs = {t.name: rng.integers(-128, 128, t.shape, np.int8) for t in graph.inputs}
        outputs, stats = self.run(what, executable, inputs)
        expected, _ = reference.run(graph, inputs)
        exact = all(np.array_equal(outputs[name], value) for name, value in expected.items())
        instructions = sum(len(step.launch.insn) for step in executable.launches)
        return row(self.cfg, stats, macs=graph.macs, instructions=instructions, exact=exact), stats

    def predict(self, what: str, launch: Launch) -> int:
        """The cycles of `launch` by the timing model, without values; in the profile as `what`."""
        from ...hw.isa import known_isa
        from ...runtime.device import program_stats
        from ...sim.timing import predict

        timing = predict(launch, dram=self.dram, skip=self.skip)
        stats = program_stats(known_isa(launch.cfg), launch.insn)
        stats.cycles, stats.counters, stats.timeline = timing.cycles, Counter(timing.counters), timing.timeline
        self.profile.add(what, launch, stats)
        return timing.cycles

    def facts(self, workload: str) -> dict[str, Any]:
        """The head of the document of `workload`."""
        found = {"workload": workload, "config": self.cfg.name, "dram": self.dram.name, "device": self.name}
        return found | {"contract": "double", "skip": sorted(self.skip)}

    def say(self, facts: Mapping[str, Any]) -> None:
        """Print the end of the text: the rounding contract, and what the profile has of `facts`."""
        report.say_contract(facts["contract"])
        self.profile.say(facts)


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


def check_names(names: Sequence[str], known: Collection[str]) -> None:
    """Raise `UnsupportedError` for a layer that is not `known`."""
    for name in names:
        if name not in known:
            raise UnsupportedError(f"unknown layer {name!r}; must be one of {', '.join(known)}")


def emit(about: dict[str, Any], rows: Sequence[dict[str, Any]], sums: dict[str, Any]) -> None:
    """Print the document: `about`, from `Bench.facts`, the layers' rows, and their sums."""
    report.emit_json(about | {"layers": rows} | sums)
