"""`python -m tools.configs`: the timing model against the circuit on configurations that are no presets.

Each is drawn at random over all fields, small enough that its simulation is built in about a minute, with a small
network of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import click
import numpy as np

from tilewright.apps.explore.trial import on_accelerator, small_network
from tilewright.cli import report
from tilewright.cli.options import json_option
from tilewright.compiler import graph as g
from tilewright.compiler.graph.reference import compare
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import STANDARD_EXTENSIONS, Config
from tilewright.hw.errors import ConfigError, ProgramError, UnsupportedError
from tilewright.hw.fields import EXTENSIONS, Parameter, parameters
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.runtime.verify import verify
from tilewright.sim.dram import MAX_OUTSTANDING, ZYNQ_HP, Dram, unshared
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict

_WIDTHS = ("inp_bits", "wgt_bits", "out_bits")  # networks need 8 bits, which most configurations have
_SIZES = ("uop_bytes", "inp_bytes", "wgt_bytes", "acc_bytes")
_OFTEN = 0.75  # how often a width is 8, a size is stated
_TERNARY = 0.2  # how often there is the second unit


def random_config(seed: int) -> Config:
    """A legal configuration: fields are drawn until they go together."""
    rng = np.random.default_rng([seed, 0])
    while True:
        values = _drawn(rng)
        try:
            cfg = Config.from_dict({"name": f"random_{seed}", **values})
        except ConfigError:
            continue
        # numbers of their own, so that the other fields of a seed stay
        double, few = (np.random.default_rng([seed, k]).random() < share for k, share in ((2, 0.2), (4, 0.4)))
        if few and cfg.wgt_bits == 8 and cfg.block_in >= 4 and cfg.block_out >= 2:
            cfg = cfg.replace(extensions=cfg.extensions | {"pad_value", "wgt4"})
        return cfg.replace(array_clock=2) if double and cfg.block_in >= 2 else cfg


def random_memory(seed: int) -> Dram:
    """A memory without random stalls: latencies, widths and bursts in flight."""
    rng = np.random.default_rng([seed, 1])
    return Dram(
        name=f"random_{seed}",
        latency=_number(rng, 1, 1000),
        response=_number(rng, 1, 1000),
        port_bytes=_number(rng, 1, 64),
        total_bytes=_number(rng, 1, 1024),
        outstanding=_number(rng, 1, MAX_OUTSTANDING),
        outstanding_writes=_number(rng, 1, MAX_OUTSTANDING),
    )


def _drawn(rng: np.random.Generator) -> dict[str, object]:
    """A value for every field; they need not go together.

    Half of the configurations have the extensions that networks want, a batch of 1; most have blocks of one size.
    """
    values: dict[str, object] = {
        name: _value(rng, p) for name, p in parameters(Config).items() if p.high and name != "array_clock"
    }
    values |= {name: 8 for name in _WIDTHS if rng.random() < _OFTEN}
    values |= {name: None for name in _SIZES if rng.random() > _OFTEN}
    values["dsp_packing"] = bool(rng.random() < 0.5)
    values["extensions"] = extensions = _extensions(rng)
    if rng.random() < 0.5:
        values["batch"] = 1
    if rng.random() < 0.9:
        values["store_ports"] = 1  # the circuit has no more
    if rng.random() < 0.5:
        values["axi_bits"] = int(rng.choice([32, 64]))  # with which it has as many load ports as one likes
    if rng.random() < _TERNARY:
        values |= {"units": ["gemm", "ternary"], "acc_banks": 4}
    if rng.random() < 0.7:
        values["block_out"] = values["block_in"]
    else:
        values["extensions"] = [name for name in extensions if not name.startswith("depthwise")]
    return values


def _extensions(rng: np.random.Generator) -> list[str]:
    """Names of extensions with those that they need."""
    found = set(STANDARD_EXTENSIONS) if rng.random() < 0.5 else set()
    found |= {name for name in EXTENSIONS if name != "wgt4" and rng.random() < 0.5}
    if "requant" not in found and rng.random() < 0.5:
        found.add("requant")
    if "requant" not in found:
        found -= {name for name, row in EXTENSIONS.items() if row.extends == "requant"}
    found |= {EXTENSIONS[name].extends for name in found} - {""}
    return sorted(found)


def _value(rng: np.random.Generator, parameter: Parameter) -> int:
    low, high = parameter.low, parameter.high
    if parameter.powers:
        return 1 << int(rng.integers(low.bit_length() - 1, high.bit_length()))
    return _number(rng, low, high)


def _number(rng: np.random.Generator, low: int, high: int) -> int:
    """A number within the limits; each doubling is as likely."""
    return int(np.clip(np.exp2(rng.uniform(np.log2(low), np.log2(high + 1))), low, high))


MOST_MULTIPLIERS = 64  # of the circuits that are tried
WORST = 0.02  # error, as a share of the circuit's cycles


@dataclass(frozen=True)
class TriedConfig:
    """One network on one configuration: cycles in model and circuit, and whether the results are right."""

    config: str
    choices: str
    memory: str
    launches: int
    timing: int
    rtl: int
    exact: bool

    @property
    def error(self) -> float:
        """Error of the model, as a share of the circuit's cycles."""
        return self.timing / self.rtl - 1


@dataclass(frozen=True)
class Outcome:
    """`launches` and their `cycles` in the timing model, of a network that ran exactly; else the `refusal`."""

    launches: int = 0
    cycles: int = 0
    refusal: str = ""


def attempt(cfg: Config, dram: Dram, graph: g.Graph, seed: int = 0) -> Outcome:
    """Compile `graph`, prove its launches, predict their cycles, and compare every value with the golden interpreter.

    Raises `ProgramError` for a wrong result, and the errors of the compiler, the proof and the model. Each is a defect,
    except `UnsupportedError`, which becomes the refusal.
    """
    rng = np.random.default_rng([seed, 3])
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    try:
        launches, cycles = 0, 0
        for every in (False, True):
            executable = on_accelerator(graph, cfg, every_value=every)
            for step in executable.launches:
                verify(step.launch)
            with Loaded(executable, open_device("model", cfg)) as loaded:
                found = compare(graph, inputs, loaded.run(inputs))
            if found.difference is not None:
                raise ProgramError(f"{cfg.name}: {found.difference}")
            if not every:
                timings = [predict(step.launch, dram=unshared(cfg, dram)) for step in executable.launches]
                launches, cycles = len(timings), sum(timing.cycles for timing in timings)
    except UnsupportedError as exc:
        return Outcome(refusal=str(exc))
    return Outcome(launches, cycles)


@click.command()
@click.option("--seed", default=0, show_default=True, help="First seed of configurations, memories and networks.")
@click.option("--count", default=12, show_default=True, type=click.IntRange(1), help="Configurations to try.")
@click.option("--any-memory", is_flag=True, help="Draw a memory for each, too, some slower than the ports.")
@json_option
def command(seed: int, count: int, any_memory: bool, as_json: bool) -> int:
    """Compare predicted with simulated cycles on random configurations.

    The exit status is 0 only if every result is exact and no error is above 2 %.
    """
    rows = []
    with report.progress("building circuits and running", count) as advance:
        for cfg, dram, graph in islice(candidates(seed, any_memory), count):
            advance(0, cfg.name)
            rows.append(tried(cfg, dram, graph))
            advance()
    passed = all(row.exact and abs(row.error) <= WORST for row in rows)
    if as_json:
        report.emit_json({"seed": seed, "passed": passed, "rows": [vars(row) | {"error": row.error} for row in rows]})
        return int(not passed)
    columns = ["config", "choices", "memory", "launches", "timing", "rtl", "error %", "exact"]
    table = [
        [
            r.config,
            r.choices,
            r.memory,
            r.launches,
            r.timing,
            r.rtl,
            f"{100 * r.error:+.3f}",
            "yes" if r.exact else "NO",
        ]
        for r in rows
    ]
    report.table(columns, table)
    errors = [abs(row.error) for row in rows]
    report.say(f"mean error {100 * sum(errors) / len(errors):.3f} %, worst {100 * max(errors):.3f} %")
    return int(not passed)


def candidates(seed: int, any_memory: bool = False) -> Iterator[tuple[Config, Dram, g.Graph]]:
    """Configurations whose circuits are small, each with a network that runs on it, in part at least, and a memory.

    The memory is the PYNQ-Z1's, or with `any_memory` drawn at random, too.
    """

    while True:
        cfg, seed = random_config(seed), seed + 1
        if cfg.macs_per_cycle > MOST_MULTIPLIERS:
            continue
        try:
            check_buildable(cfg)
        except UnsupportedError:
            continue
        graph = small_network(seed - 1, cfg.wgt_bits)
        if on_accelerator(graph, cfg).launches:
            yield cfg, unshared(cfg, random_memory(seed - 1) if any_memory else ZYNQ_HP), graph


def tried(cfg: Config, dram: Dram, graph: g.Graph) -> TriedConfig:
    """One row. Builds the circuit where the cache has none."""
    executable, rng = on_accelerator(graph, cfg), np.random.default_rng(0)
    inputs = {t.name: rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, RtlDevice(cfg, dram=dram)) as loaded:
        exact = compare(graph, inputs, loaded.run(inputs)).difference is None
        cycles = loaded.stats.cycles
    assert cycles is not None
    launches = executable.launches
    predicted = sum(predict(step.launch, dram=dram).cycles for step in launches)
    return TriedConfig(cfg.name, choices(cfg), memory(dram), len(launches), predicted, cycles, exact)


def choices(cfg: Config) -> str:
    """The values of `cfg` that programs and circuits depend on most, in a few words."""
    depths = "/".join(str(n) for n in (cfg.uop_depth, cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth))
    return (
        f"{cfg.batch}x{cfg.block_in}x{cfg.block_out}, w{cfg.wgt_bits}, depths {depths}, {cfg.load_ports} x "
        f"{cfg.axi_bits} bits, queues {cfg.queue_depth}, tokens {cfg.token_depth}, {len(cfg.extensions)} extensions"
    )


def memory(dram: Dram) -> str:
    """The values of `dram` in a few words."""
    return f"{dram.latency}/{dram.response}, {dram.port_bytes} B, {dram.outstanding}/{dram.outstanding_writes} bursts"


if __name__ == "__main__":
    raise SystemExit(command.main(standalone_mode=False))
