"""`make bench-timing`: the timing model against the simulated circuit, with fresh tilings and programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from tilewright.cli import report
from tilewright.cli.bench.layers import EPILOGUE, layers, program, work_of
from tilewright.cli.bench.two_units import Division
from tilewright.cli.options import json_option
from tilewright.compiler.api import build
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.schedule.tiling import Work
from tilewright.compiler.tile import ORDERS, OUTPUT_DIMS, Tile
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import CapacityError, ScheduleError
from tilewright.runtime.executable import Executable
from tilewright.runtime.launch import Launch
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import random_case
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

RESNET = [f"C{k}" for k in range(2, 13)]
RANKED = ("C3", "C5", "C8", "C11", "fc")  # layers that the circuit's simulation runs in a moment
LAYERS, SMALL, TILINGS, RANDOM = "ResNet-18", "small networks", "tilings", "random programs"
DIVIDED = "divided layers"  # by two compute units
GROUPS = (LAYERS, SMALL, DIVIDED, TILINGS, RANDOM)
RUNS = 5  # of the timing model, whose speed is measured
MOST_TILES = 300  # in a random tiling


@dataclass(frozen=True)
class TimedProgram:
    """One program: cycles of model and circuit, and the model's seconds: processor time, the least of `RUNS` runs; 0
    where not measured.
    """

    group: str
    name: str
    config: str
    instructions: int
    timing: int
    rtl: int
    seconds: float

    @property
    def error(self) -> float:
        """Error of the model, as a share of the circuit's cycles."""
        return self.timing / self.rtl - 1


@click.command()
@click.option("--seed", default=0, show_default=True, help="Seed of tilings and programs.")
@click.option("--tilings", default=30, show_default=True, type=click.IntRange(3), help="Tilings per layer, of five.")
@click.option("--programs", default=50, show_default=True, type=click.IntRange(1), help="Random programs per preset.")
@click.option("--only", type=click.Choice(GROUPS), multiple=True, help="A kind of programs; all if none is named.")
@json_option
def command(seed: int, tilings: int, programs: int, only: tuple[str, ...], as_json: bool) -> int:
    """Compare predicted with simulated cycles: ResNet-18, small networks' layers, layers that two compute units divide,
    random tilings and programs.

    The exit status is 0 only if the mean absolute error of each group is at most 2 %, the worst 5 %, and the rank
    correlation of the tilings of each layer at least 0.95.
    """
    bench, presets, chosen = _TimingBench(), (PRESETS["pynq_z1"], PRESETS["vta"]), only or GROUPS
    for cfg in presets:
        if LAYERS in chosen:
            bench.all(LAYERS, cfg, _resnet(cfg))
        if SMALL in chosen:
            bench.all(SMALL, cfg, _small(cfg))
    for cfg in (PRESETS["pynq_z1_two"], PRESETS["tiny_two"]) if DIVIDED in chosen else ():
        bench.all(DIVIDED, cfg, ((one.name, one.launch(cfg)) for one in divisions(cfg)))
    for name in RANKED if TILINGS in chosen else ():
        bench.all(f"{TILINGS} of {name}", presets[0], _tilings(name, presets[0], seed, tilings))
    for cfg in (*presets, PRESETS["tiny"], PRESETS["tiny_two"]) if RANDOM in chosen else ():
        bench.random(cfg, seed, programs)
    facts = bench.summary(seed)
    if as_json:
        rows = [vars(row) | {"error": row.error} for row in bench.rows]
        report.emit_json(facts | {"rows": rows})
    else:
        bench.show(facts)
    return int(not facts["passed"])


class _TimingBench:
    """Rows: each program on a circuit with empty memory."""

    def __init__(self) -> None:
        self.rows: list[TimedProgram] = []

    def all(self, group: str, cfg: Config, programs: Iterator[tuple[str, Program | Launch]]) -> None:
        """Measure the (name, program) of `programs`."""
        for name, made in programs:
            launch = made if isinstance(made, Launch) else made.finish()
            cycles, seconds = predict(launch).cycles, list[float]()
            for _ in range(RUNS):
                start = time.process_time()
                predict(launch)
                seconds.append(time.process_time() - start)
            self.rows.append(
                TimedProgram(group, name, cfg.name, len(launch.insn), cycles, self._circuit(launch), min(seconds))
            )

    def _circuit(self, launch: Launch) -> int:
        executable = Executable.from_launch(launch)
        inputs = {t.name: np.zeros(t.shape, t.dtype) for t in executable.inputs}
        cycles = run(executable, inputs, RtlDevice(launch.cfg))[1].cycles
        assert cycles is not None
        return cycles

    def random(self, cfg: Config, seed: int, count: int) -> None:
        """Measure random programs."""
        circuit, model = RtlDevice(cfg), TimingDevice(cfg)
        for k in range(1000 * seed, 1000 * seed + count):
            image, address, insns = random_case(cfg, k)
            expected = circuit.run_image(image.copy(), address, insns).cycles
            got = model.run_image(image, address, insns).cycles
            assert got is not None and expected is not None
            self.rows.append(TimedProgram(RANDOM, str(k), cfg.name, insns, got, expected, 0.0))

    def summary(self, seed: int) -> dict[str, Any]:
        """The figures that decide the exit status, and those by group."""
        ranks = {name: _spearman(timed) for name in RANKED if (timed := self._rows(f"{TILINGS} of {name}"))}
        errors = [abs(row.error) for row in self.rows]
        speeds = {}
        for config in dict.fromkeys(row.config for row in self._rows(LAYERS)):
            timed = [row for row in self._rows(LAYERS) if row.config == config]
            speeds[config] = sum(row.instructions for row in timed) / sum(row.seconds for row in timed)
        mean, worst = sum(errors) / len(errors), max(errors)
        means = [sum(found) / len(found) for found in self._errors().values()]
        return {
            "seed": seed,
            "mean_error": mean,
            "worst_error": worst,
            "rank_correlation": ranks,
            "instructions_per_second": speeds,
            "passed": max(means) <= 0.02 and worst <= 0.05 and min(ranks.values(), default=1) >= 0.95,
        }

    def _rows(self, group: str) -> list[TimedProgram]:
        return [row for row in self.rows if row.group == group]

    def _errors(self) -> dict[tuple[str, str], list[float]]:
        """The absolute errors by group and configuration."""
        found: dict[tuple[str, str], list[float]] = {}
        for row in self.rows:
            found.setdefault((row.group, row.config), []).append(abs(row.error))
        return found

    def show(self, facts: dict[str, Any]) -> None:
        """Single layers, then groups, then all."""
        columns = ["group", "program", "config", "instructions", "timing", "rtl", "error %"]
        table = [
            [r.group, r.name, r.config, r.instructions, r.timing, r.rtl, f"{100 * r.error:+.3f}"]
            for r in self.rows
            if r.group in (LAYERS, SMALL)
        ]
        if table:
            report.table(columns, table)
        table = []
        for (group, config), found in self._errors().items():
            errors = [100 * error for error in found]
            rank = facts["rank_correlation"].get(group.removeprefix(f"{TILINGS} of "))
            rank = "" if rank is None else f"{rank:.4f}"
            mean = f"{sum(errors) / len(errors):.3f}"
            table.append([group, config, len(errors), mean, f"{max(errors):.3f}", rank])
        report.table(["group", "config", "programs", "mean error %", "worst error %", "rank correlation"], table)
        speeds = ", ".join(f"{speed:,.0f} on {name}" for name, speed in facts["instructions_per_second"].items())
        speeds = speeds and f"; {LAYERS} in instructions per second of processor time: {speeds}"
        report.say(
            f"seed {facts['seed']}: mean error {100 * facts['mean_error']:.3f} %, "
            f"worst {100 * facts['worst_error']:.3f} %{speeds}"
        )


def _resnet(cfg: Config) -> Iterator[tuple[str, Program]]:
    known = {layer.shape_name: layer for layer in reversed(layers())}
    for name in RESNET:
        yield name, program(known[name], cfg)


def divisions(cfg: Config) -> Iterator[Division]:
    """Layers that two units divide: kernels, strides, sizes, and quarters of the channels."""
    channels = 4 * cfg.block_out
    sizes = (56, 28, 14, 7) if cfg.block_out > 8 else (28, 14, 7, 5)
    for kernel in (3, 1):
        pads = (1, 1, 1, 1) if kernel == 3 else (0, 0, 0, 0)
        for stride in (1, 2):
            for size in sizes[: len(sizes) + 1 - stride]:
                shape = ConvShape(1, channels, size, size, channels, (kernel, kernel), (stride, stride), pads)
                yield from (Division(shape, k * cfg.block_out) for k in range(1, 5))
    for inputs, outputs in ((4 * channels, channels), (channels, 8 * channels)):
        for quarters in range(1, 5):
            yield Division(ConvShape(1, inputs, 1, 1, outputs), outputs * quarters // 4)


def _small(cfg: Config) -> Iterator[tuple[str, Program]]:
    """Layers as in the networks of MLPerf Tiny."""
    after: Any = [("requant", "q")] if "requant" in cfg.extensions else EPILOGUE
    one = (1, 1, 1, 1)
    layers: dict[str, Callable[[], Any]] = {
        "3x3, 3 channels, 32x32": lambda: conv2d(cfg, 1, 32, 32, 3, 16, 3, 3, pad=one, epilogue=after),
        "3x3, 16 channels, 32x32": lambda: conv2d(cfg, 1, 32, 32, 16, 16, 3, 3, pad=one, epilogue=after),
        "3x3, 32 to 64, stride 2": lambda: conv2d(cfg, 1, 16, 16, 32, 64, 3, 3, (2, 2), one, epilogue=after),
        "1x1, 64 channels, 25x5": lambda: conv2d(cfg, 1, 25, 5, 64, 64, 1, 1, epilogue=after),
        "1x1, 128 to 256, 6x6": lambda: conv2d(cfg, 1, 6, 6, 128, 256, 1, 1, epilogue=after),
        "dense, 640 to 128": lambda: dense(cfg, 1, 640, 128, epilogue=after),
        "dense, 64 to 12": lambda: dense(cfg, 1, 64, 12, epilogue=after),
    }
    if "depthwise" in cfg.extensions:
        layers["depthwise 3x3, 64 channels, 25x5"] = lambda: depthwise(cfg, 1, 25, 5, 64, 3, 3, pad=one, epilogue=after)
        layers["depthwise 3x3, 16 channels, 48x48, stride 2"] = lambda: depthwise(
            cfg, 1, 48, 48, 16, 3, 3, stride=(2, 2), pad=one, epilogue=after
        )
    for name, schedule in layers.items():
        yield name, build(schedule(), cfg, name="layer")


def _tilings(name: str, cfg: Config, seed: int, count: int) -> Iterator[tuple[str, Program]]:
    """Random legal tiles of one layer."""
    layer = next(layer for layer in layers() if layer.shape_name == name)
    work, rng = work_of(layer, cfg), np.random.default_rng([seed, RANKED.index(name)])
    made = 0
    while made < count:
        tile = _random_tile(work, rng)
        if tile is None:
            continue
        try:
            found = program(layer, cfg, tile=tile)
        except (CapacityError, ScheduleError):
            continue
        made += 1
        yield str(tile), found


def _random_tile(work: Work, rng: np.random.Generator) -> Tile | None:
    """A tile of which the layer has at most `MOST_TILES`, or None."""
    sizes, tiles = {}, 1
    for dim in (*OUTPUT_DIMS, "ci"):
        extent = getattr(work, dim)
        legal = sorted({-(-extent // k) for k in range(1, extent + 1)})
        if dim in ("co", "ci"):
            legal = [size for size in legal if extent % size == 0]
        sizes[dim] = int(rng.choice(legal))
        tiles *= -(-extent // sizes[dim])
    threads = int(rng.integers(1, 3))
    dims = [dim for dim in OUTPUT_DIMS if -(-getattr(work, dim) // sizes[dim]) >= threads]
    if tiles > MOST_TILES or not dims:
        return None
    order = ORDERS[rng.integers(len(ORDERS))]
    return Tile(**sizes, order=order, thread=str(rng.choice(dims)), vthreads=threads)


def _spearman(rows: list[TimedProgram]) -> float:
    """Rank correlation of predicted and simulated cycles; equal values share the mean of their ranks."""

    def ranks(values: list[int]) -> np.ndarray:
        array = np.array(values)
        return (array[:, None] > array).sum(1) + ((array[:, None] == array).sum(1) - 1) / 2

    return float(np.corrcoef(ranks([row.timing for row in rows]), ranks([row.rtl for row in rows]))[0, 1])


if __name__ == "__main__":
    raise SystemExit(command.main(standalone_mode=False))
