"""`tilewright generate`: text from a language model, token by token, on a device, and where a token's time goes."""

from __future__ import annotations

import functools
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from ..boards.credentials import read_token
from ..compiler.frontend import import_model
from ..compiler.frontend.llama.checkpoint import describe, read_checkpoint
from ..compiler.frontend.llama.forms import read_integers
from ..compiler.frontend.llama.measure import Loss, perplexity
from ..compiler.frontend.source import LLAMAS, read_source
from ..compiler.graph import Graph, Operator
from ..compiler.target.host import HostModel
from ..compiler.target.variants import in_blocks
from ..hw.errors import InputError, TilewrightError, UnsupportedError
from ..runtime.executable import Executable, LaunchStep
from ..runtime.language import TextCodec, language_model, open_codec
from ..runtime.launch import Launch
from ..runtime.sampling import Sampling
from ..runtime.steps import runs_in
from ..sim.dram import ZYNQ_HP, Dram, load_dram, unshared
from ..sim.profile import profile
from ..sim.timing import predict
from . import report
from .chat import Conversation, Template, converse
from .completions import STOPS, Completions, Defaults
from .endpoint import PORT, Endpoint, new_key, parse_address
from .layers import run_rows
from .options import Choices, Where, config_option, context_option, json_option, where_options
from .profile import Profile, profile_option
from .programs import is_network, open_program
from .remedy import remedy, say_remedy
from .run import need_network
from .writer import Writer

_TOKENS = 64  # of a text


@dataclass(frozen=True)
class Speech:
    """What is written and how: `tokens` at most, chosen by `sampling` with `seed`, up to one of `stops`.

    `chat` answers messages, the first of them `system`, by a `template`; `address` serves answers to callers with the
    key in `key_file`.
    """

    tokens: int | None
    sampling: Sampling
    seed: int | None
    stops: tuple[str, ...]
    chat: bool
    system: str | None
    template: str | None
    address: str | None
    key_file: str | None

    def check(self) -> None:
        """Raise `click.UsageError` for options that need others."""
        random = {"--seed": self.seed is not None, "--top-k": self.sampling.top_k, "--top-p": self.sampling.top_p < 1}
        served = self.address is not None
        for option, given in random.items():
            if given and not (self.sampling.temperature or served):
                raise click.UsageError(f"{option} is for choices at random; give --temperature above 0, too")
        if served and (len(self.stops) > STOPS or "" in self.stops):
            raise InputError(f"--stop: give at most {STOPS} texts of at least one character each")
        if self.chat and served:
            raise click.UsageError("--chat and --serve: give one of them; a server answers chats, too")
        if self.system is not None and not self.chat:
            raise click.UsageError("--system begins a conversation; give --chat, too")
        if self.template is not None and not (self.chat or served):
            raise click.UsageError("--template is for conversations; give --chat or --serve, too")
        if self.key_file is not None and not served:
            raise click.UsageError("--api-key-file is for callers of a server; give --serve, too")


_SPEECH_OPTIONS = (
    click.option(
        "--tokens",
        type=click.IntRange(min=2),
        metavar="N",
        help=f"Tokens in all, those of the prompt among them [{_TOKENS}]; with --chat or --serve, of an answer at most "
        "[what the context holds].",
    ),
    click.option(
        "--temperature",
        default=0.0,
        show_default=True,
        metavar="T",
        help="Choose at random, the likely tokens less often the higher it is; 0: the most likely token.",
    ),
    click.option("--top-k", default=0, metavar="K", help="Choose only among the K most likely tokens. [all]"),
    click.option(
        "--top-p",
        default=1.0,
        metavar="P",
        help="Choose only among the fewest tokens that have the probability P together. [1]",
    ),
    click.option(
        "--repeat-penalty",
        default=1.0,
        metavar="R",
        help="Divide positive logits of tokens that the text has by R, and multiply negative ones. [1]",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        help="Fixes the choices at random. [0; with --serve: a new one for each request]",
    ),
    click.option(
        "--stop", "stops", multiple=True, metavar="TEXT", help="End before this text; may be given several times."
    ),
    click.option(
        "--chat", is_flag=True, help="Answer --prompt, or every line of standard input, by the chat template."
    ),
    click.option("--system", metavar="TEXT", help="With --chat: the system's message, before all others."),
    click.option("--template", metavar="FILE", help="With --chat or --serve: a chat template in Jinja. [the model's]"),
    click.option(
        "--serve",
        "address",
        is_flag=False,
        flag_value="",
        metavar="[ADDRESS:PORT]",
        help=f"Serve the model to this machine by OpenAI's completions protocol. [127.0.0.1:{PORT}]",
    ),
    click.option(
        "--api-key-file", "key_file", metavar="FILE", help="With --serve: the key of callers. [a new one, printed]"
    ),
)
_SAMPLING = ("temperature", "top_k", "top_p", "repeat_penalty")


def _speech_options(function: Any) -> Any:
    """Add the options of `Speech`; the verb gets them as its argument `speech`."""

    @functools.wraps(function)
    def call(*arguments: Any, **values: Any) -> Any:
        sampling = Sampling(**{name: values.pop(name) for name in _SAMPLING})
        mine = {name: values.pop(name) for name in Speech.__dataclass_fields__ if name != "sampling"}
        return function(*arguments, speech=Speech(sampling=sampling, **mine), **values)

    for option in reversed(_SPEECH_OPTIONS):
        call = option(call)
    return call


@click.command()
@click.argument("model")
@click.option(
    "--tokenizer",
    metavar="FILE",
    help="The model's tokenizer: llama2.c's .bin, tokenizer.json, or .gguf. [that of a .gguf or a folder]",
)
@context_option
@click.option("--prompt", metavar="TEXT", help="What the text begins with, or with --chat the message to answer.")
@_speech_options
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
    prompt: str | None,
    speech: Speech,
    texts: int,
    check: bool,
    compare: bool,
    profiles: tuple[str, ...],
    where: Where,
    config: str | None,
    as_json: bool,
) -> int:
    """Write a text with MODEL: a Llama (.gguf, llama2.c's .bin or a Hugging Face folder), its integers (.npz, of
    `quantise`), or the .tw program that `compile` made of one; or chat with it, or serve it.

    A Llama in float is quantised to int8 by texts that it writes itself. Every token is one run of the program, whose
    state holds the keys and values of those before; whole blocks of the prompt are one run, too, where attention runs
    on the accelerator. Of a network, not of a program, the cycles of the timing model are split into parts.
    With --check the exit status is 1 if a logit differs; it is 6 for a tokenizer of another size or a damaged
    checkpoint, and 9 for more tokens than the context holds.
    """
    where.check()
    speech.check()
    profile = Profile(profiles, where.name, {"MODEL": model, "--tokenizer": tokenizer, "--config": config})
    about_runs = {"--check": check, "--texts": texts, "--compare": compare}
    if speech.address is not None:
        _only_serving({"--prompt": prompt is not None, "--profile": profiles, "--json": as_json, **about_runs})
    place = None if speech.address is None else parse_address(speech.address)  # mistakes are refused before the work
    key = read_token(speech.key_file) if speech.key_file else ""
    _check_network(model, about_runs)
    words, choices = _words(model, context), Choices(dram=where.dram, context=context)
    executable = None
    if words is None:
        executable = open_program(model, config, choices)
        words = language_model(executable).words
    codec = open_codec(model, tokenizer, words)
    template = _template(model, codec, speech)
    with report.progress(f"preparing {model}"):
        executable = executable or open_program(model, config, choices)
        graph = _graph(model, context) if is_network(model) else None
    if compare:
        check_blocks(executable)
    with where.open(executable) as loaded:
        writer = Writer(loaded, executable, codec, graph if check else None)
        if place is not None:
            _serve(Completions(writer, Path(model).stem, template, _defaults(speech)), *place, key)
            return 0
        failure: TilewrightError | None = None
        if template is not None:
            found, failure = _converse(writer, template, speech, prompt, not as_json)
        else:
            found = write_text(writer, speech, prompt or "", not as_json)
        reports = loaded.reports
    about = {"model": model, "config": executable.cfg.name, "device": where.name, "contract": executable.contract}
    about |= {"remedy": remedy(model, executable)}
    result = about | found | writer.result(where.clock_hz)
    if profiles:
        layers = run_rows(executable, [reports], where.clock_hz)
        result |= profile.write_run(executable, reports, about | {"clock_mhz": where.clock_hz / 1e6, "layers": layers})
    if graph is not None:
        clock, memory = where.clock_hz, None if where.dram is None else load_dram(where.dram)
        result = shares(graph, executable, writer.positions, writer.blocks, clock, memory) | result
        steps = speech.tokens or min(_TOKENS, writer.model.context)
        result |= {"compared": recomputing(graph, executable, steps, clock, memory)} if compare else {}
        result |= _loss(model, context, graph, texts).facts() if texts else {}
    if as_json:
        report.emit_json(result)
    else:
        profile.say(result)
        _summarise(result)
        say_remedy(cast("str | None", result["remedy"]))
    if failure:
        raise failure
    return int(bool(writer.wrong))


def write_text(writer: Writer, speech: Speech, prompt: str, echo: bool) -> dict[str, Any]:
    """Write a text that begins with `prompt`: its facts for JSON."""
    codec = writer.codec
    tokens = [*codec.begin, *codec.encode(prompt, special=True)]
    count = speech.tokens or min(_TOKENS, writer.model.context)
    _, answer = writer.answer(tokens, speech.sampling.chooser(speech.seed or 0), count, speech.stops)
    shown = ""
    for piece in answer:
        if echo:
            report.say(piece if shown else prompt + piece, nl=False)
        shown = prompt + answer.text
    if echo:
        report.say("" if shown else prompt)
    return {"text": prompt + answer.text, "tokens": writer.tokens, "finish": answer.finish}


def _converse(
    writer: Writer, template: Template, speech: Speech, prompt: str | None, echo: bool
) -> tuple[dict[str, Any], TilewrightError | None]:
    """Hold a conversation: its facts for JSON, and the error that ended it after at least one answer."""
    choose = speech.sampling.chooser(speech.seed or 0)
    conversation = Conversation(writer, template, choose, speech.system, speech.tokens, speech.stops)
    failure = None
    try:
        converse(conversation, prompt, echo)
    except TilewrightError as exc:
        if not conversation.turns:
            raise
        failure = exc
    return {"turns": conversation.turns, "tokens": writer.tokens}, failure


def _template(model: str, codec: TextCodec, speech: Speech) -> Template | None:
    """The template of conversations; None for texts, and for a server whose model has none."""
    if speech.chat or speech.template is not None or (speech.address is not None and codec.template is not None):
        return Template(model, codec, speech.template)
    return None


def _defaults(speech: Speech) -> Defaults:
    return Defaults(speech.sampling, speech.seed, speech.tokens, speech.stops)


def _serve(completions: Completions, host: str, port: int, key: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    endpoint = Endpoint(completions, host, port, key or new_key())
    shown = f"[{host}]" if ":" in host else host
    report.say(f"serving {completions.name} at http://{shown}:{endpoint.port}/v1; end with Ctrl-C")
    if not key:
        report.say(f"the API key is {endpoint.key}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager ends it so: like Ctrl-C
    try:
        endpoint.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        endpoint.close()


def _only_serving(options: Mapping[str, object]) -> None:
    """Refuse options of one text beside --serve."""
    for option, given in options.items():
        if given:
            raise click.UsageError(f"{option} is for one text or chat; leave it out with --serve")


def _check_network(model: str, options: Mapping[str, object]) -> None:
    """Refuse options that need the network where `model` is something else."""
    for option, given in options.items():
        if given:
            need_network(model, option)
    if options["--texts"] and model.endswith(".npz"):
        raise UnsupportedError(f"{model}: --texts compares with the float32 model; give that")


def _words(model: str, context: int | None) -> int | None:
    """The words of a Llama, so that a wrong tokenizer is found before it is compiled; None for a program."""
    source = read_source(model, context=context) if is_network(model) else None
    if source is not None and source.kind in LLAMAS:
        return describe(source).sizes.words
    return read_integers(source).sizes.words if source is not None and source.kind == ".npz" else None


def _graph(model: str, context: int | None) -> Graph:
    return import_model(read_source(model, context=context))


def _loss(model: str, context: int | None, graph: Graph, texts: int) -> Loss:
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
    if "host_tokens_per_second" in result:
        report.say(f"the host's steps alone, on this machine: {result['host_tokens_per_second']:,.0f} tokens/s")
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
        report.say_loss(result)


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
