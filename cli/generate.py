"""`tilewright generate`: text from a language model, token by token, on a device, and where a token's time goes."""

from __future__ import annotations

import codecs
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

import click

from ..compiler.frontend import import_model
from ..compiler.frontend.llama.checkpoint import read_checkpoint
from ..compiler.frontend.llama.measure import Steps, perplexity
from ..compiler.frontend.source import read_source
from ..compiler.graph import Graph, Operator
from ..compiler.target.host import HostModel
from ..compiler.target.variants import in_blocks
from ..hw.errors import UnsupportedError
from ..runtime import layout
from ..runtime.executable import Executable, LaunchStep
from ..runtime.language import (
    NOTHING,
    Choose,
    Step,
    TextCodec,
    codec_file,
    language_model,
    most_likely,
    open_codec,
    sampler,
    write,
)
from ..runtime.launch import Launch
from ..runtime.steps import runs_in
from ..sim.dram import ZYNQ_HP, Dram, load_dram, unshared
from ..sim.profile import profile
from ..sim.timing import predict
from . import report
from .layers import run_rows
from .options import Choices, Where, config_option, context_option, json_option, where_options
from .profile import Profile, profile_option
from .programs import is_network, open_program
from .remedy import remedy, say_remedy
from .run import need_network


@click.command()
@click.argument("model")
@click.option(
    "--tokenizer",
    metavar="FILE",
    help="The model's tokenizer: llama2.c's .bin, tokenizer.json, or .gguf. [that of a .gguf or a folder]",
)
@context_option
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
    tokenizer: str | None,
    context: int | None,
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
    """Write a text with MODEL: a Llama (.gguf, llama2.c's .bin or a Hugging Face folder), its integers (.npz, of
    `quantise`), or the .tw program that `compile` made of one.

    A Llama in float is quantised to int8 by texts that it writes itself. Every token is one run of the program, whose
    state holds the keys and values of those before; whole blocks of the prompt are one run, too, where attention runs
    on the accelerator. Of a network, not of a program, the cycles of the timing model are split into parts.
    With --check the exit status is 1 if a logit differs; it is 6 for a tokenizer of another size or a damaged
    checkpoint, and 9 for more tokens than the context holds.
    """
    where.check()
    profile = Profile(profiles, where.name, {"MODEL": model, "--tokenizer": tokenizer, "--config": config})
    if seed is not None and temperature is None:
        raise click.UsageError(f"--seed {seed} fixes choices at random; give --temperature, too")
    codec_file(model, tokenizer)  # what cannot be read is refused before the work
    _check_network(model, {"--check": check, "--texts": texts, "--compare": compare})
    choose = most_likely if temperature is None else sampler(temperature, seed or 0)
    with report.progress(f"preparing {model}"):
        executable = open_program(model, config, Choices(dram=where.dram, context=context))
        graph = _graph(model, context) if is_network(model) else None
    words = language_model(executable).words
    if compare:
        check_blocks(executable)
    writer = Writer(open_codec(model, tokenizer, words), graph if check else None, echo=not as_json)
    with where.open(executable) as loaded:
        writer.write(loaded, executable, prompt, tokens, choose)
        reports = loaded.reports
    about = {"model": model, "config": executable.cfg.name, "device": where.name, "contract": executable.contract}
    about |= {"remedy": remedy(model, executable)}
    result = about | writer.result(where.clock_hz)
    if profiles:
        layers = run_rows(executable, [reports], where.clock_hz)
        result |= profile.write_run(executable, reports, about | {"clock_mhz": where.clock_hz / 1e6, "layers": layers})
    if graph is not None:
        clock, memory = where.clock_hz, None if where.dram is None else load_dram(where.dram)
        result = shares(graph, executable, writer.positions, writer.blocks, clock, memory) | result
        result |= {"compared": recomputing(graph, executable, tokens, clock, memory)} if compare else {}
        result |= {"perplexity": _perplexity(model, context, graph, texts)} if texts else {}
    if as_json:
        report.emit_json(result)
    else:
        profile.say(result)
        _summarise(result)
        say_remedy(cast("str | None", result["remedy"]))
    return int(bool(writer.wrong))


def _check_network(model: str, options: Mapping[str, object]) -> None:
    """Refuse options that need the network where `model` is something else."""
    for option, given in options.items():
        if given:
            need_network(model, option)
    if options["--texts"] and model.endswith(".npz"):
        raise UnsupportedError(f"{model}: --texts compares with the float32 model; give that")


def _graph(model: str, context: int | None) -> Graph:
    return import_model(read_source(model, context=context))


def _perplexity(model: str, context: int | None, graph: Graph, texts: int) -> dict[str, float]:
    with report.progress(f"perplexity on {report.counted(texts, 'text')}"):
        return perplexity(read_checkpoint(read_source(model, context=context)), graph, texts)


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


class Writer:
    """`echo` prints the text; with a `graph` each step's logits are compared with its own."""

    def __init__(self, codec: TextCodec, graph: Graph | None, echo: bool):
        self._codec, self._graph, self._echo = codec, graph, echo
        self.tokens: list[int] = []
        self.blocks: list[int] = []  # the first positions of blocks of tokens that were one run
        self.positions: list[int] = []  # of the other runs, of one token each
        self.cycles: dict[int, int] = {}  # of each run, by its first position
        self.wrong: list[int] = []  # positions
        self.text, self.seconds = "", 0.0

    def write(self, loaded: Any, executable: Executable, prompt: str, count: int, choose: Choose) -> None:
        """Write a text of `count` tokens that begins with `prompt`."""
        codec = self._codec
        given, start = [*codec.begin, *codec.encode(prompt)], time.perf_counter()
        golden, decoder = self._golden(), codecs.getincrementaldecoder("utf-8")("replace")
        if given and not codec.begin:
            self._add(decoder.decode(codec.piece(NOTHING, given[0])))
        self.tokens = given[:1]
        for step in write(loaded, language_model(executable), given, count, choose, codec.ends):
            (self.blocks if len(step.tokens) > 1 else self.positions).append(step.position)
            if loaded.stats.cycles is not None:
                self.cycles[step.position] = loaded.stats.cycles
            if golden is not None and _differs(golden, step, loaded):
                self.wrong.append(step.position + len(step.tokens) - 1)
            for token in (*step.tokens[1:], step.following):
                if token is not None:
                    self._add(decoder.decode(codec.piece(self.tokens[-1], token)))
                    self.tokens.append(token)
        self._add(decoder.decode(b"", final=True) + "\n")
        self.text, self.seconds = self.text.removesuffix("\n"), time.perf_counter() - start

    def result(self, clock: float) -> dict[str, object]:
        """The facts for JSON; `clock` is the accelerator's, in Hz."""
        found: dict[str, object] = {"text": self.text, "tokens": self.tokens, "seconds": self.seconds}
        found["clock_mhz"] = clock / 1e6
        if self.blocks:
            found["prefill_tokens"] = self.positions[0] if self.positions else len(self.tokens) - 1
        for key, places in (("prefill_cycles", self.blocks), ("cycles_per_token", self.positions)):
            if places and self.cycles:
                found[key] = [self.cycles[place] for place in places]
        if self.positions and self.cycles:
            cycles = [self.cycles[place] for place in self.positions]
            found["tokens_per_second"] = clock * len(cycles) / sum(cycles)
        return found | ({} if self._graph is None else {"wrong_positions": self.wrong})

    def _golden(self) -> Any:
        if self._graph is None:
            return None
        return Steps(self._graph)

    def _add(self, piece: str) -> None:
        self.text += piece
        if self._echo:
            report.say(piece, nl=False)


def _differs(golden: Any, step: Step, loaded: Any) -> bool:
    """Whether the logits of a run, or the caches after a block of tokens, differ from the interpreter's.

    A program on a server keeps its caches there.
    """
    logits = [golden.logits(token) for token in step.tokens]
    if logits[-1].tobytes() != step.logits.tobytes():
        return True
    if len(step.tokens) == 1 or not hasattr(loaded, "state"):
        return False
    cfg = loaded.executable.cfg
    kept = {name: layout.pack_blocks(values, cfg.batch, cfg.block_in) for name, values in golden.state.items()}
    return any(found.tobytes() != kept[name].tobytes() for name, found in loaded.state.items())


PARTS = ("weights", "attention", "norms", "rest")


def part_of(op: Operator) -> str:
    """The part that an operator's cycles count with."""
    from ..compiler import graph as g

    kinds = {
        "weights": (g.Linear, g.Dense16, g.IntegerConv2d),
        "attention": (g.Attention, g.Rotate, g.Write),
        "norms": (g.RmsNorm,),
    }
    return next((part for part, known in kinds.items() if isinstance(op, known)), "rest")


def shares(
    graph: Graph,
    executable: Executable,
    positions: Sequence[int],
    blocks: Sequence[int],
    clock: float,
    dram: Dram | None = None,
) -> dict[str, Any]:
    """For runs of a language model: {"cycles_per_token", "cycles_by_part", "host_share"}, and {"prefill_cycles"}.

    Those of one token are at `positions`; where there are some of a block of tokens, these begin at `blocks`. Cycles
    are those of the timing model with the memory `dram`, by default `zynq_hp`; by part they are means per token, the
    host's modelled seconds in cycles of the accelerator's `clock`, in Hz; the share is of the sum of both.
    """
    from ..compiler.network import compile_for

    size, found = language_model(executable).block, dict[str, Any]()
    if blocks:
        parts = parts_of(graph, executable, "block", [first // size for first in blocks], dram)
        found["prefill_cycles"] = [part.total() for part in parts]
    if positions:
        parts = parts_of(graph, executable, "position", positions, dram)
        whole = sum(parts, Counter())
        means = {part: whole[part] / len(positions) for part in PARTS}
        host = clock * compile_for(graph, executable.cfg, dram=dram).host_seconds(HostModel())
        found["cycles_per_token"] = [part.total() for part in parts]
        found["cycles_by_part"] = means | {"host": host}
        found["host_share"] = host / (host + sum(means.values()))
    return found


def parts_of(
    graph: Graph, executable: Executable, tensor: str, values: Sequence[int], dram: Dram | None = None
) -> list[Counter[str]]:
    """The accelerator's cycles by part of each run in which the input `tensor` has one of these `values`."""
    kinds = {op.name: part_of(op) for op in graph.ops}
    found: list[Counter[str]] = [Counter() for _ in values]
    for step in executable.steps:
        runs = [k for k, value in enumerate(values) if runs_in(step, {tensor: value})]
        if runs and isinstance(step, LaunchStep):
            parts = _by_part(step.launch, kinds, dram)
            for k in runs:
                found[k] += parts
    return found


def _by_part(launch: Launch, kinds: dict[str, str], dram: Dram | None) -> Counter[str]:
    """Cycles of a launch; those before its first instruction and after its last belong to the rest."""
    timing = predict(launch, dram=unshared(launch.cfg, dram or ZYNQ_HP))
    found: Counter[str] = Counter()
    for share in profile(launch, timing.timeline(), timing.cycles):
        found[kinds.get(share.path[0], "rest") if share.path else "rest"] += share.cycles
    return found


DEEPLOY = 23  # the ratio that Deeploy's authors publish for 256 steps of their microLlama


def check_blocks(executable: Executable) -> None:
    """Raise `UnsupportedError` where the program takes no blocks of tokens."""
    if language_model(executable).block == 1:
        raise UnsupportedError(
            f"{executable.cfg.name}: its program takes a token at a time; blocks of tokens need attention on the "
            "accelerator, as on pynq_z1_plus"
        )


def recomputing(
    graph: Graph, executable: Executable, steps: int, clock: float, dram: Dram | None = None
) -> dict[str, Any]:
    """{"steps", "cache", "recomputing", "ratio"} of `steps` runs of a language model, one token behind the other.

    `cache` and `recomputing` are cycles by part, with `host` and `total`, by the timing model with the memory `dram`,
    as of `shares`, and the modelled host, in cycles of the accelerator's `clock`, in Hz. Without a cache a step takes
    all tokens so far again: whole blocks, then the rest as one more block or token by token, whichever is faster.
    Raises `UnsupportedError` where the program takes no blocks.
    """
    from ..compiler.network import compile_for

    check_blocks(executable)
    size = language_model(executable).block
    rows = in_blocks(graph, size)
    assert rows is not None  # its program has blocks
    alone, together = (
        clock * compile_for(g, executable.cfg, dram=dram).host_seconds(HostModel()) for g in (graph, rows)
    )
    tokens = [_with(parts, alone) for parts in parts_of(graph, executable, "position", range(steps), dram)]
    blocks = [_with(parts, together) for parts in parts_of(graph, executable, "block", range(-(-steps // size)), dram)]
    again: Counter[str] = Counter()
    for count in range(1, steps + 1):
        whole, rest = divmod(count, size)
        again += _sum(blocks[:whole])
        if rest:
            again += min(blocks[whole], _sum(tokens[whole * size : count]), key=_total)
    found = {"cache": _sum(tokens), "recomputing": again}
    facts = {
        name: {part: parts[part] for part in (*PARTS, "host")} | {"total": _total(parts)}
        for name, parts in found.items()
    }
    return {"steps": steps, **facts, "ratio": facts["recomputing"]["total"] / facts["cache"]["total"]}


def _with(parts: Counter[str], host: float) -> Counter[str]:
    return parts + Counter({"host": round(host)})


def _sum(runs: list[Counter[str]]) -> Counter[str]:
    return sum(runs, Counter())


def _total(parts: Counter[str]) -> int:
    return sum(parts.values())
