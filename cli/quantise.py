"""`tilewright quantise`: writes a checkpoint's integers to a file, and measures the loss of accuracy."""

from __future__ import annotations

from pathlib import Path

import click

from ..compiler.frontend.llama.checkpoint import Checkpoint, read_checkpoint
from ..compiler.frontend.llama.measure import perplexity
from ..compiler.frontend.llama.quantise import LENGTH, calibrate, quantised
from ..compiler.frontend.llama.step import decoder_step
from ..hw.errors import FileError, UnsupportedError
from ..hw.foreign import TEXT_BYTES, read_regular
from ..runtime.language import Tokenizer
from . import report
from .options import json_option
from .programs import check_output


@click.command()
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="X.npz", help="The file of integers to write.")
@click.option("--tokenizer", metavar="FILE.bin", help="The model's tokenizer, as llama2.c has it; for --calibration.")
@click.option(
    "--calibration",
    metavar="FILE.txt",
    help="Take scales from its lines, each a text, in place of texts that the model writes.",
)
@click.option(
    "--texts",
    default=16,
    type=click.IntRange(min=0),
    show_default=True,
    metavar="N",
    help="Print the perplexity on N texts that the model writes, others than those of the scales.",
)
@json_option
def command(model: str, output: str, tokenizer: str | None, calibration: str | None, texts: int, as_json: bool) -> None:
    """Quantise MODEL, a checkpoint of llama2.c (.bin), to int8 and write its integers.

    `generate`, `compile` and the other verbs take the file as they take the checkpoint. It needs no calibration when
    it is read, and gives the same program on every machine.
    """
    if tokenizer is not None and calibration is None:
        raise click.UsageError(f"--tokenizer {tokenizer} is for the texts of --calibration; give both or neither")
    check_output(output, (".npz",), {"MODEL": model, "--tokenizer": tokenizer, "--calibration": calibration})
    checkpoint = read_checkpoint(model)
    given = _texts(checkpoint, tokenizer, calibration)
    with report.progress(f"quantising {model}") as advance:
        integers = quantised(checkpoint, calibrate(checkpoint, given))
        graph = decoder_step(integers, checkpoint.sizes.context)
        integers.save(output)
        advance(what=f"perplexity on {report.counted(texts, 'text')}")
        found = perplexity(checkpoint, graph, texts) if texts else {}
    nbytes = Path(output).stat().st_size
    if as_json:
        report.emit_json({"model": model, "integers": output, "bytes": nbytes, "perplexity": found})
        return
    report.say(f"{output}: {nbytes / 1000:,.0f} kB")
    if found:
        report.say(f"perplexity: {found['int8']:.3f} in int8, {found['float32']:.3f} in float32")


def _texts(model: Checkpoint, tokenizer: str | None, calibration: str | None) -> list[list[int]] | None:
    """The tokens of a file's lines; None without a file. Raises `UnsupportedError`, and as `Tokenizer`."""
    known = None if tokenizer is None else Tokenizer(tokenizer, model.sizes.words)
    if calibration is None:
        return None
    if known is None:
        raise UnsupportedError(f"--calibration {calibration} holds text; give the model's tokens with --tokenizer")
    text = read_regular(calibration, "a text file", TEXT_BYTES).decode(errors="replace")
    most = min(LENGTH, model.sizes.context)
    texts = [known.encode(line.strip())[:most] for line in text.splitlines() if line.strip()]
    if not texts:
        raise FileError(f"{calibration}: holds no text; give a file with a text in each line")
    return texts
