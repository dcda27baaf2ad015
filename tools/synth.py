"""`make bench-synth`: the core's timing before placement against the figures that the repository records."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilewright.boards import timing
from tilewright.boards.timing import TimedCore
from tilewright.cli import report
from tilewright.cli.options import json_option
from tilewright.hw.config import load_config

RECORD = Path(__file__).with_name("synth.json")  # by configuration: figures of `figures`
# figures that must not grow, and by how much they may: Yosys' result moves a little with any change
MAY_GROW = {"logic_ns": 0.05, "estimate_ns": 0.15, "lut": 200, "bram": 0, "dsp": 0, "uncovered": 0}


@click.command()
@click.option("--config", "configs", multiple=True, help="A recorded configuration; all if none is named.")
@click.option("--update", is_flag=True, help="Record the figures found.")
@json_option
def command(configs: tuple[str, ...], update: bool, as_json: bool) -> int:
    """Synthesise the recorded configurations, flattened, and compare timing and resources with the record.

    The exit status is 0 only if no figure grew by more than its tolerance.
    """
    record = json.loads(RECORD.read_text())
    found = {}
    for name in configs or record:
        with report.progress("starting") as advance:
            found[name] = figures(timing.time_core(load_config(name), report=lambda what: advance(0, what)))
    if update:
        RECORD.write_text(json.dumps(record | found, indent=1) + "\n")
    grown = [worse for name in found for worse in compare(name, record.get(name, {}), found[name])]
    if as_json:
        report.emit_json({"record": record, "found": found, "grown": grown})
    else:
        for name, now in found.items():
            _show(name, record.get(name, {}), now)
        report.say("\n".join(grown) or "no figure grew")
    return int(bool(grown) and not update)


def figures(found: TimedCore) -> dict[str, float]:
    """The recorded figures of one configuration: ns, LUTs, flip-flops, block RAMs, DSPs."""
    times, total = found.timing, found.total
    return {
        "logic_ns": times.logic_ns,
        "levels": times.levels,
        "estimate_ns": times.estimate_ns,
        "fmax_estimate_mhz": round(times.fmax_estimate_mhz, 1),
        "dsp_full": times.dsp_full,
        "bram_registered": times.bram_registered,
        "uncovered": sum(times.uncovered.values()),
        "lut": total.lut,
        "ff": total.ff,
        "bram": total.bram,
        "dsp": total.dsp,
    }


def compare(name: str, before: dict[str, float], now: dict[str, float]) -> list[str]:
    """A line for every figure of `now` that exceeds the one `before` by more than its tolerance."""
    return [
        f"{name}: {key} grew from {before[key]:g} to {now[key]:g}, by more than {most:g}"
        for key, most in MAY_GROW.items()
        if key in before and now[key] > before[key] + most
    ]


def _show(name: str, before: dict[str, float], now: dict[str, float]) -> None:
    rows = [[key, f"{before[key]:g}" if key in before else "none", f"{value:g}"] for key, value in now.items()]
    report.table([name, "recorded", "now"], rows)


if __name__ == "__main__":
    raise SystemExit(command.main(standalone_mode=False))
