"""`tilewright compile`: a network or a schedule becomes a `.tw` program."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import report
from .options import config_option, contract_option, json_option, tiles_option
from .programs import MODEL_HELP, check_output, compile_source

if TYPE_CHECKING:
    from ..hw.config import Config


@click.command(help=f"Compile MODEL into a .tw program.\n\n{MODEL_HELP}")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="X.tw", help="The program file to write.")
@config_option()
@contract_option
@tiles_option
@click.option("--verify/--no-verify", default=True, show_default=True, help="Prove every launch free of races.")
@json_option
def command(
    model: str, output: str, config: str, contract: str | None, tiles: str | None, verify: bool, as_json: bool
) -> None:
    """Compile, verify, save, and print where each step runs."""
    from ..hw.config import load_config
    from .layers import compiled_rows, print_compiled, share_on_device
    from .verify import verify_executable

    cfg = load_config(config)
    check_output(output, (".tw",), {"MODEL": model, "--config": config})
    start = time.perf_counter()
    with report.progress(f"compiling {model} for {cfg.name}") as advance:
        executable = compile_source(model, cfg, contract, tiles)
        if verify:
            advance(what="verifying")
            verify_executable(executable)
        executable.save(output)
    seconds = time.perf_counter() - start
    rows = compiled_rows(executable)
    if as_json:
        result = {"program": output, "config": cfg.name, "fingerprint": f"{cfg.fingerprint:016x}", "layers": rows}
        result |= {"macs_on_device": share_on_device(executable), "verified": verify, "seconds": seconds}
        report.emit_json(result)
        return
    print_compiled(executable)
    if tiles is not None:
        _say_without_tiles(tiles, cfg)
    size = Path(output).stat().st_size / 1000
    proof = "verified: no deadlock, no race" if verify else "not verified"
    click.echo(f"{output}: {size:,.0f} kB for {cfg.name}, {proof}, {seconds:.1f} s")


def _say_without_tiles(tiles: str, cfg: Config) -> None:
    from ..compiler.tune.known import known_tiles

    if not known_tiles(tiles, cfg).tiles:
        click.echo(f"{tiles} has no faster tiles for {cfg.name}; tilewright tune with --config searches for them")
