"""`tilewright rtl`: the circuit as Verilog."""

from __future__ import annotations

from pathlib import Path

import click

from ..hw.config import load_config
from ..hw.needs import need
from ..runtime.files import atomic_write
from . import report
from .options import config_option, json_option
from .programs import check_output


@click.command()
@click.option("-o", "--output", required=True, metavar="CORE.v", help="The Verilog file to write.")
@config_option()
@json_option
def command(output: str, config: str, as_json: bool) -> None:
    """Write the circuit of a configuration as one Verilog file, for simulators and for synthesis."""
    cfg = load_config(config)
    check_output(output, (".v",), {"--config": config})
    need("the circuit", "rtl", "amaranth")
    from ..hw.rtl.verilog import to_verilog, top_name

    with report.progress(f"elaborating {cfg.name}"):
        text = to_verilog(cfg)
    with atomic_write(output) as temporary:
        temporary.write_text(text)
    facts = {"config": cfg.name, "top": top_name(cfg), "lines": text.count("\n"), "output": str(Path(output))}
    if as_json:
        report.emit_json(facts)
    else:
        report.say(f"{facts['top']}: {facts['lines']:,} lines of Verilog in {output}")
