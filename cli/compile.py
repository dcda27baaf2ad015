"""`tilewright compile`: a network or a schedule becomes a `.tw` program, or C sources."""

from __future__ import annotations

import time
from pathlib import Path

import click
from click.core import ParameterSource

from ..hw.config import Config, load_config
from ..hw.errors import UnsupportedError
from ..hw.foreign import TEXT_BYTES, read_regular
from ..runtime.c.emit import check_options
from ..runtime.c.emit import emit as emit_c
from ..runtime.c.folder import check_folder
from ..runtime.executable import Executable
from ..runtime.proof.signature import check_key
from ..runtime.proof.signature import sign as signed_by
from . import report
from .layers import compiled_rows, print_compiled, share_on_device
from .options import (
    Choices,
    batch_option,
    choice_options,
    config_option,
    context_option,
    contract_option,
    input_type_option,
    json_option,
    mapping_option,
    memory_option,
    resident_option,
    shape_option,
    target_option,
    tiles_option,
)
from .programs import MODEL_HELP, check_output, compile_source, open_program
from .remedy import remedy, say_remedy
from .verify import verify_executable

_HELP = f"Compile MODEL into a .tw program, or with --emit c MODEL or a .tw program into C sources.\n\n{MODEL_HELP}"


@click.command(help=_HELP)
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="X.tw|DIR", help="The program file to write; of C the folder.")
@click.option("--emit", type=click.Choice(["tw", "c"]), default="tw", show_default=True, help="What to write.")
@click.option("--binary", is_flag=True, help="With --emit c: program and constants as network.bin, not as an array.")
@click.option(
    "--tokenizer", metavar="FILE.bin", help="With --emit c: add an example that writes a text with these words."
)
@config_option()
@choice_options(
    contract_option,
    tiles_option,
    mapping_option,
    target_option,
    memory_option,
    batch_option,
    input_type_option,
    shape_option,
    context_option,
    resident_option,
)
@click.option("--sign", metavar="KEY", help="Sign X.tw with this SSH key, as X.tw.sig; verify --key checks it.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Prove every launch free of races.")
@json_option
def command(
    model: str,
    output: str,
    emit: str,
    binary: bool,
    tokenizer: str | None,
    config: str,
    choices: Choices,
    sign: str | None,
    verify: bool,
    as_json: bool,
) -> None:
    """Compile, verify, save, and print where each step runs."""
    cfg = load_config(config)
    if emit == "c":
        _check_c(output, binary, tokenizer, sign, choices.resident)
    elif binary or tokenizer is not None:
        option = "--binary" if binary else f"--tokenizer {tokenizer}"
        raise UnsupportedError(f"{option} is only for C sources; add --emit c, or drop it")
    else:
        check_output(
            output, (".tw",), {"MODEL": model, "--config": config, "--mapping": choices.mapping, "--sign": sign}
        )
        if sign is not None:
            check_key(sign)
    start, proved = time.perf_counter(), ()
    with report.progress(f"compiling {model} for {cfg.name}") as advance:
        executable = _program(model, config, choices, emit)
        if verify:
            advance(what="verifying")
            proved = verify_executable(executable).values()
        size = _write(executable, output, emit, binary, tokenizer)
    signature = None if sign is None else str(signed_by(output, sign))
    seconds, cfg = time.perf_counter() - start, executable.cfg
    rows = compiled_rows(executable)
    if as_json:
        result = {
            ("folder" if emit == "c" else "program"): output,
            "config": cfg.name,
            "fingerprint": f"{cfg.fingerprint:016x}",
            "contract": executable.contract,
            "layers": rows,
        }
        result |= {"macs_on_device": share_on_device(executable), "verified": verify, "seconds": seconds}
        result |= {"remedy": remedy(model, executable)}
        result |= {"signature": signature} if signature else {}
        report.emit_json(result)
        return
    print_compiled(executable)
    if choices.tiles is not None:
        _say_without_tiles(choices.tiles, cfg)
    pairs, implied = sum(len(r.pairs) for r in proved), sum(r.implied for r in proved)
    tokens = f"{report.counted(pairs, 'token')}, {implied or 'none'} implied by others"
    proof = f"verified: no deadlock, no race, {tokens}" if verify else "not verified"
    signed = f", signed: {signature}" if signature else ""
    report.say(f"{output}: {size / 1000:,.0f} kB for {cfg.name}, {proof}{signed}, {seconds:.1f} s")
    say_remedy(remedy(model, executable))


def _program(model: str, config: str, choices: Choices, emit: str) -> Executable:
    """The executable of `model`. A .tw program, from which only C is made, keeps its own configuration by default."""
    if emit == "c" and model.endswith(".tw"):
        if choices.dram is not None:
            raise UnsupportedError(
                f"--dram {choices.dram}: {model} is compiled, for the memory it was made for; drop it"
            )
        source = click.get_current_context().get_parameter_source("config")
        given = None if source == ParameterSource.DEFAULT else config
        return open_program(model, given, choices)
    return compile_source(model, load_config(config), choices)


def _check_c(output: str, binary: bool, tokenizer: str | None, sign: str | None, resident: bool) -> None:
    """Raise the errors that are known before the network is compiled."""
    if resident:
        raise UnsupportedError("--resident is only for .tw programs: C sources load all in every run; drop it")
    if sign is not None:
        raise UnsupportedError(f"--sign {sign} is only for .tw programs; drop it, or --emit c")
    check_folder(output)
    check_options(binary, tokenizer)
    if tokenizer is not None:
        read_regular(tokenizer, "a tokenizer", TEXT_BYTES)


def _write(executable: Executable, output: str, emit: str, binary: bool, tokenizer: str | None) -> int:
    """Write the file or the folder; returns the bytes written."""
    if emit == "c":
        names = emit_c(executable, "network", output, binary=binary, tokenizer=tokenizer)
        return sum((Path(output) / name).stat().st_size for name in names)
    executable.save(output)
    return Path(output).stat().st_size


def _say_without_tiles(tiles: str, cfg: Config) -> None:
    from ..compiler.tune.search import known_tiles

    if not known_tiles(tiles, cfg).tiles:
        report.say(f"{tiles} has no faster tiles for {cfg.name}; tilewright tune with --config searches for them")
