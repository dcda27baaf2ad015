"""`tilewright report`: the command line of this folder."""

from __future__ import annotations

import click

from ...hw.errors import UnsupportedError
from .. import report as output
from ..options import (
    config_option,
    contract_option,
    device_option,
    dram_option,
    json_option,
    mapping_option,
    target_option,
)
from ..programs import MODEL_HELP, check_output

HELP = f"""Run MODEL once and write a page about it: where each operator runs and why, its cycles, the timeline of the
units with waits and tokens, memory, limits of the machine, exactness, and what makes it slow.

The page is one file, which needs no network; the data are inside, and --json prints them. With --compare the page has
the differences from an earlier report, what --json printed then. Every number is shown with its source.

{MODEL_HELP} Of a program with several entries the first is shown."""


@click.command(help=HELP)
@click.argument("model")
@click.option("-o", "--output", "path", metavar="X.html", help="The page to write.")
@device_option("timing")
@config_option(None, "As for compile (default: pynq_z1; a .tw program: the one it was compiled for).")
@contract_option
@mapping_option
@target_option
@dram_option
@click.option("--inputs", metavar="X.npz", help="Take the first inputs of this file, as of `run`, not random ones.")
@click.option("--compare", metavar="A.json", help="Show the differences from this earlier report.")
@json_option
def command(
    model: str,
    path: str | None,
    device: str,
    config: str | None,
    contract: str | None,
    mapping: str | None,
    target: str | None,
    dram: str | None,
    inputs: str | None,
    compare: str | None,
    as_json: bool,
) -> int:
    """Run, write the page, and return the exit status: 1 where results differ from what they must equal."""
    from ...hw.needs import need
    from .make import report

    if path is None and not as_json:
        raise UnsupportedError("report: nothing to write; give -o X.html, or --json")
    if path is not None:
        sources = {"MODEL": model, "--inputs": inputs, "--config": config, "--compare": compare}
        check_output(path, (".html",), sources)
        need("the page of a report", "report", "bokeh")
    with output.progress(f"reporting on {model}"):
        facts = {"contract": contract, "mapping": mapping, "target": target, "compare": compare}
        found = report(model, config, on=device, inputs=inputs, dram=dram, **facts)
        if path is not None:
            found.save(path)
    if as_json:
        output.say(found.to_json())
    else:
        output.say(f"{found!r}\n{found.data['exactness']['text']}\npage written to {path}")
        output.say_contract(found.data["contract"])
    return int(found.data["exactness"]["equal"] is False)
