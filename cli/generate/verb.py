"""`tilewright generate`: text from a language model, token by token, on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from .. import report
from ..golden import need_network
from ..layers import run_rows
from ..options import config_option, json_option
from ..profile.files import Profile, profile_option
from ..programs import is_network, open_program
from ..where import Where, where_options
from .recomputing import DEEPLOY, check_blocks, recomputing
from .shares import shares
from .writing import Writer

if TYPE_CHECKING:
    from ...compiler.graph import Graph


@click.command()
@click.argument("model")
@click.option("--tokenizer", required=True, metavar="FILE.bin", help="The model's tokenizer, as llama2.c has it.")
@click.option("--prompt", default="", metavar="TEXT", help="What the text begins with.")
@click.option(
    "--tokens",
    default=64,
    type=click.IntRange(min=2),
    show_default=True,
    help="Tokens in all, those of the prompt among them.",
)
@click.option("--temperature", type=float, metavar="T", help="Choose at random; without it, the most likely token.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="With --temperature: fixes the choices.  [default: 0]",
)
@click.option(
    "--texts",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Also print the perplexity on N texts that the model writes.",
)
@click.option("--check", is_flag=True, help="Compare every step's logits with the golden interpreter's.")
@click.option(
    "--compare",
    is_flag=True,
    help="Also print what as many steps take with the cache of keys and values, and without, by the timing model.",
)
@profile_option
@where_options
@config_option(None, "As for compile (default: pynq_z1; a .tw program: the one it was compiled for).")
@json_option
def command(
    model: str,
    tokenizer: str,
    prompt: str,
    tokens: int,
    temperature: float | None,
    seed: int | None,
    texts: int,
    check: bool,
    compare: bool,
    profiles: tuple[str, ...],
    where: Where,
    config: str | None,
    as_json: bool,
) -> int:
    """Write a text with MODEL, a checkpoint of llama2.c (.bin), its integers (.npz, of `quantise`), or the .tw program
    that `compile` made of one.

    A checkpoint is quantised to int8 by texts that it writes itself. Every token is one run of the program, whose
    state holds the keys and values of those before; whole blocks of the prompt are one run, too, where attention runs
    on the accelerator. Of a network, not of a program, the cycles of the timing model are split into parts.
    With --check the exit status is 1 if a logit differs; it is 6 for a tokenizer of another size or a damaged
    checkpoint, and 9 for more tokens than the context holds.
    """
    from ...hw.foreign import TEXT_BYTES, read_regular
    from ...runtime.language import Tokenizer, language_model, most_likely, sampler
    from ...sim.dram import load_dram

    where.check()
    profile = Profile(profiles, where.name, {"MODEL": model, "--tokenizer": tokenizer, "--config": config})
    if seed is not None and temperature is None:
        raise click.UsageError(f"--seed {seed} fixes choices at random; give --temperature, too")
    read_regular(tokenizer, "a tokenizer", TEXT_BYTES)  # what cannot be read is refused before the work
    _check_network(model, {"--check": check, "--texts": texts, "--compare": compare})
    choose = most_likely if temperature is None else sampler(temperature, seed or 0)
    with report.progress(f"preparing {model}"):
        executable = open_program(model, config, dram=where.dram)
        graph = _graph(model) if is_network(model) else None
    words = language_model(executable).words
    if compare:
        check_blocks(executable)
    writer = Writer(Tokenizer(tokenizer, words), graph if check else None, echo=not as_json)
    with where.open(executable) as loaded:
        writer.write(loaded, executable, prompt, tokens, choose)
        reports = loaded.reports
    about = {"model": model, "config": executable.cfg.name, "device": where.name, "contract": executable.contract}
    result = about | writer.result(where.clock_hz)
    if profiles:
        layers = run_rows(executable, [reports], where.clock_hz)
        result |= profile.write_run(executable, reports, about | {"clock_mhz": where.clock_hz / 1e6, "layers": layers})
    if graph is not None:
        clock, memory = where.clock_hz, None if where.dram is None else load_dram(where.dram)
        result = shares(graph, executable, writer.positions, writer.blocks, clock, memory) | result
        result |= {"compared": recomputing(graph, executable, tokens, clock, memory)} if compare else {}
        result |= {"perplexity": _perplexity(model, graph, texts)} if texts else {}
    if as_json:
        report.emit_json(result)
    else:
        profile.say(result)
        _summarise(result)
    return int(bool(writer.wrong))


def _check_network(model: str, options: Mapping[str, object]) -> None:
    """Refuse options that need the network where `model` is something else."""
    from ...hw.errors import UnsupportedError

    for option, given in options.items():
        if given:
            need_network(model, option)
    if options["--texts"] and model.endswith(".npz"):
        raise UnsupportedError(f"{model}: --texts compares with the float32 model; give the checkpoint, .bin")


def _graph(model: str) -> Graph:
    from ...compiler.frontend import import_model

    return import_model(model)


def _perplexity(model: str, graph: Graph, texts: int) -> dict[str, float]:
    from ...compiler.frontend.llama.checkpoint import read_checkpoint
    from ...compiler.frontend.llama.measure import perplexity

    with report.progress(f"perplexity on {report.counted(texts, 'text')}"):
        return perplexity(read_checkpoint(model), graph, texts)


def _compared(found: dict) -> None:
    cache, again = found["cache"], found["recomputing"]
    cells = [[part, cache[part], again[part], again[part] / cache[part] if cache[part] else None] for part in cache]
    report.say(f"{found['steps']} steps, cycles by the timing model and the modelled host:")
    report.table(["part", "with the cache", "computing all again", "ratio"], cells[:-1], cells[-1])
    report.say(f"the cache saves {found['ratio']:.1f}x; Deeploy's, of 256 steps of another model, {DEEPLOY}x")


def _summarise(result: dict) -> None:
    report.say_contract(result["contract"])
    count, rate = len(result["tokens"]), result.get("tokens_per_second")
    report.say(
        f"{report.counted(count, 'token')} on {result['device']}, {result['config']}, in {result['seconds']:.1f} s"
    )
    if "prefill_cycles" in result:
        count, cycles = result["prefill_tokens"], sum(result["prefill_cycles"])
        report.say(
            f"{report.counted(count, 'token')} of the prompt in blocks: {cycles:,} cycles, {cycles / count:,.0f} each"
        )
    if rate is not None:
        cycles = result["cycles_per_token"]
        report.say(
            f"{sum(cycles) / len(cycles):,.0f} cycles per token on the accelerator, which alone would give "
            f"{rate:.0f} tokens/s if the circuit closes at {result['clock_mhz']:g} MHz; the host's steps are not in it"
        )
    if "cycles_by_part" in result:
        parts, share = result["cycles_by_part"], result["host_share"]
        split = ", ".join(f"{part} {found:,.0f}" for part, found in parts.items())
        rate = 1e6 * result["clock_mhz"] / sum(parts.values())
        report.say(
            f"timing model, cycles per token: {split} ({100 * share:.1f} %, modelled): {rate:,.0f} tokens/s if the "
            f"circuit closes at {result['clock_mhz']:g} MHz"
        )
    if "compared" in result:
        _compared(result["compared"])
    if "wrong_positions" in result:
        wrong = result["wrong_positions"]
        report.say(
            f"check: logits differ at positions {wrong}" if wrong else "check: all logits equal the interpreter's"
        )
    if "perplexity" in result:
        found = result["perplexity"]
        report.say(f"perplexity: {found['int8']:.3f} in int8, {found['float32']:.3f} in float32")
