"""`tilewright quantise`: a float network becomes an int8 network, a checkpoint its integers; accuracy is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..apps.quantise.api import FORMATS, quantise
from ..apps.quantise.api import inspect as inspect_float
from ..apps.quantise.result import Comparison, Quantised, ways_table
from ..apps.quantise.samples import Pictures
from ..apps.quantise.times import predict, predict_float
from ..compiler.frontend.llama.checkpoint import Sizes, describe, read_checkpoint
from ..compiler.frontend.llama.forms import FORMS, integers_of, logits_of, step_of
from ..compiler.frontend.llama.measure import measured_texts, perplexities
from ..compiler.frontend.llama.quantise import LENGTH
from ..compiler.frontend.llama.wide import WideIntegers
from ..compiler.frontend.source import LLAMAS, check_kind, kind_of, read_source
from ..hw.config import Config, load_config
from ..hw.errors import FileError, InputError, TilewrightError, UnsupportedError, one_line
from ..hw.foreign import TEXT_BYTES, read_npz, read_regular, whole_number
from ..hw.needs import need
from ..runtime.files import atomic_write
from ..runtime.language import TextCodec, open_codec
from . import report
from .options import config_option, context_option, json_option, picture_options, shape_option
from .programs import check_output, check_room

_SHOWN = 8  # operators that lose most
_TEXTS = 16  # of a checkpoint that perplexity is measured on
_MOST_LOSS = 2  # times the perplexity of float32: a model that has more is only written with --force
_LEAST_GAIN = 1.05  # times faster: less is no gain


@click.command()
@click.argument("model")
@click.option(
    "-o", "--output", metavar="OUT", help="The file to write. [NET.int8.onnx; a checkpoint's needs a name, X.npz]"
)
@click.option(
    "--calibration",
    metavar="X.npz|X.npy|DIR|FILE.txt",
    help="What ranges are measured on: samples, or a folder of pictures; of a checkpoint a text in each line, in place "
    "of those that it writes.",
)
@click.option("--labels", metavar="FILE", help="The right class of each sample, .npy or .npz; else those of X.npz.")
@shape_option
@picture_options
@click.option("--keep", multiple=True, metavar="NAME", help="Leave this operator in float; may be given several times.")
@click.option("--report", "page", metavar="X.html", help="Write a page with all tables, of every operator, too.")
@click.option("--inspect", is_flag=True, help="Write nothing, need no data: say what will run where after quantising.")
@config_option(
    help_text="Predict times for it: preset, VTA configuration string, or JSON file of configuration fields."
)
@click.option(
    "--tokenizer",
    metavar="FILE",
    help="Of a Llama: its tokenizer, llama2.c's .bin, tokenizer.json, or .gguf. [that of a .gguf or a folder]",
)
@context_option
@click.option(
    "--texts",
    metavar="N|FILE.txt",
    help="Of a checkpoint: print the perplexity on N texts, every fourth line of --calibration, else what the model "
    f"writes; or on the lines of a file. None of them is of the calibration. [{_TEXTS}]",
)
@click.option(
    "--weight-bits",
    type=click.Choice(["8", "4"]),
    default="8",
    show_default=True,
    help="Of a Llama: the bits of weights in layers; 4 with an integer scale for each 16 inputs of an output channel.",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    help="Of a Llama: static, a scale for each value, or wide, a scale for each token. [static, where it loses little]",
)
@click.option("--force", is_flag=True, help="Of a Llama: write it although its perplexity is more than doubled.")
@json_option
def command(
    model: str,
    output: str | None,
    calibration: str | None,
    labels: str | None,
    shapes: dict[str, tuple[int, ...]],
    picture: Pictures | None,
    keep: tuple[str, ...],
    page: str | None,
    inspect: bool,
    config: str,
    tokenizer: str | None,
    context: int | None,
    texts: str | None,
    weight_bits: str,
    form: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Quantise MODEL to int8: a float network (.onnx, .tflite, .pt2) or a Llama (.gguf, llama2.c's .bin or a Hugging
    Face folder).

    A network gets int8 activations, and int8 weights with a scale for each output channel. Ranges are measured in
    several ways, layers are equalised and biases corrected where that helps, and operators that lose much may stay in
    float; the most accurate network is written. The tables compare it with the float network on every fourth sample,
    which no range was measured on, and say the predicted times before and after. Samples are arrays by the names of
    inputs, of one input or of many, or pictures; what `run` takes of them, it takes, too. A start that was stopped goes
    on: what is done lies in OUT.parts until the end.

    A checkpoint becomes its integers, X.npz, which `generate`, `compile` and the other verbs take as they take the
    checkpoint.
    """
    check_kind(model)
    if kind_of(model) in LLAMAS:
        given: dict[str, object] = {"--labels": labels, "--shape": shapes, "--mean, --std and --resize": picture}
        given |= {"--keep": keep, "--report": page, "--inspect": inspect}
        for option, value in given.items():
            if value:
                raise UnsupportedError(f"{model}: {option} is for networks, {' or '.join(FORMATS)}; drop it")
        room = partial(check_room, model, load_config(config), context)
        room(form == WideIntegers.form)
        facts = _language_model(
            model, output, calibration, tokenizer, context, texts, int(weight_bits), form, force, room
        )
        if as_json:
            report.emit_json(facts)
        else:
            _say_language_model(facts)
        return
    given = {"--tokenizer": tokenizer, "--texts": texts, "--context": context, "--form": form}
    for option, value in (given | {"--weight-bits": None if weight_bits == "8" else weight_bits}).items():
        if value is not None:
            raise UnsupportedError(f"{model}: {option} is for a Llama; drop it")
    cfg = load_config(config)
    if inspect:
        given = {"--output": output, "--calibration": calibration, "--labels": labels, "--keep": keep, "--report": page}
        for option, value in given.items():
            if value:
                raise click.UsageError(f"{option} is for quantising; --inspect needs no data and writes nothing")
        _inspect(model, shapes, cfg, as_json)
        return
    if calibration is None:
        raise click.UsageError(
            "Missing option '--calibration': samples to measure ranges on; or --inspect without data"
        )
    kind = kind_of(model)
    output = output or f"{Path(model).with_suffix('')}.int8{FORMATS.get(kind, kind)}"
    inputs = {"MODEL": model, "--calibration": calibration, "--labels": labels}
    if kind in FORMATS:
        check_output(output, (FORMATS[kind],), inputs)
    if page is not None:
        need("the page of a report", "report", "bokeh")
        check_output(page, (".html",), inputs)
    with report.progress(f"reading {model}", 1) as advance:
        result = quantise(
            model,
            calibration,
            labels=None if labels is None else _labels(labels),
            shapes=shapes,
            pictures=picture,
            keep=keep,
            folder=f"{output}.parts",
            tell=advance,
        )
        result.save(output)
        advance(0, f"predicting times on {cfg.name}")
        facts = _facts(result, model, output, cfg)
    if page is not None:
        from .page.quantised import quantised_page  # which needs bokeh

        with atomic_write(page) as temporary:
            temporary.write_text(quantised_page(facts))
    if as_json:
        report.emit_json(facts)
    else:
        _print(facts)


def _facts(result: Quantised, model: str, output: str, cfg: Config) -> dict[str, Any]:
    """What is printed, as plain values. A prediction of time that fails says why: the network is there in any case."""
    ways = [{"way": str(way), "kept": [*way.kept], **_figures(c)} for way, c in result.tried.items()]
    facts: dict[str, Any] = {
        "model": model,
        "network": output,
        "samples": result.samples,
        "notes": [*result.notes],
        "way": str(result.way),
        "kept": [*result.way.kept],
        "in_float": [*result.in_float],
        **_figures(result.comparison),
        "ways": ways,
        "not_used": dict(result.refused),
        "operators": [vars(loss) for loss in result.comparison.operators],
    }
    return facts | _times(result, cfg)


def _figures(comparison: Comparison) -> dict[str, Any]:
    names = ("snr_db", "agreement", "float_accuracy", "int8_accuracy")
    return {name: getattr(comparison, name) for name in names}


def _times(result: Quantised, cfg: Config) -> dict[str, Any]:
    """Predicted times of an inference before and after, and where operators run."""
    facts: dict[str, Any] = {"config": cfg.name, "placement": []}
    try:
        facts["float"] = vars(predict_float(result.float_network))
    except TilewrightError as exc:
        facts["float"] = {"ms": None, "on_device": None, "why": str(exc)}
    try:
        prediction, facts["placement"] = predict(result.network, cfg)
        facts["int8"] = vars(prediction)
    except TilewrightError as exc:
        facts["int8"] = {"ms": None, "on_device": None, "why": str(exc)}
    before, after = facts["float"]["ms"], facts["int8"]["ms"]
    return facts | {"times_faster": before / after if before and after else None}


def _print(facts: dict[str, Any]) -> None:
    for text in facts["notes"]:
        report.say(text)
    report.table(*ways_table(facts))
    losses = sorted(facts["operators"], key=lambda loss: -loss["lost_db"])[:_SHOWN]
    report.table(["operator", "kind", "SNR dB", "lost dB"], [[*loss.values()] for loss in losses])
    for method, why in facts["not_used"].items():
        report.say(f"{method} is not used: {why}")
    if facts["kept"]:
        report.say(f"in float: {', '.join(facts['kept'])}")
    if facts["in_float"]:
        count = report.counted(len(facts["in_float"]), "operator")
        report.say(f"in float besides, as no 8 bits hold their results: {count} of norms, softmax and the like")
    if facts["float_accuracy"] is not None:
        before, after = 100 * facts["float_accuracy"], 100 * facts["int8_accuracy"]
        report.say(f"right: {before:.1f} % in float, {after:.1f} % in int8")
    _say_times(facts)
    report.say(
        f"{facts['network']}: {facts['way']}, signal to noise {facts['snr_db']:.1f} dB; run it with tilewright run"
    )


def _say_times(facts: dict[str, Any]) -> None:
    for name in ("float", "int8"):
        if facts[name]["ms"] is None:
            report.say(f"no time of the {name} network: {facts[name]['why']}")
    if facts["times_faster"]:
        before, after, share = facts["float"]["ms"], facts["int8"]["ms"], facts["int8"]["on_device"]
        where = "" if share is None else f", {100 * share:.1f} % of the multiply-accumulates on the accelerator"
        report.say(
            f"an inference on {facts['config']}, modelled: {before:,.1f} ms in float on the host, {after:,.1f} ms in "
            f"int8 ({facts['times_faster']:,.{0 if facts['times_faster'] >= 10 else 1}f} times faster{where})"
        )
        if facts["times_faster"] < _LEAST_GAIN:
            report.say("int8 is not faster than float here: use the float network as it is")


def _labels(path: str) -> np.ndarray:
    """The array in a .npy file, or in a .npz file under `labels` or alone. Raises `FileError` and `InputError`."""
    if path.endswith(".npy"):
        read_regular(path, "an array of labels")  # raises where there is no such file
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as exc:
            raise FileError(f"{path}: cannot be read as an array of labels ({one_line(exc)})") from None
    arrays = read_npz(path)
    if "labels" not in arrays and len(arrays) != 1:
        raise InputError(f"{path}: holds {', '.join(arrays) or 'nothing'}; give one array, or name it `labels`")
    return arrays.get("labels", next(iter(arrays.values())))


def _inspect(model: str, shapes: dict[str, tuple[int, ...]], cfg: Config, as_json: bool) -> None:
    """Quantise on random samples in memory, and show where each kind of operator would run."""
    with report.progress(f"inspecting {model}"):
        facts = _times(inspect_float(model, shapes), cfg)
    if as_json:
        report.emit_json(facts)
        return
    if facts["placement"]:
        report.records(facts["placement"])
    _say_times(facts)
    if (facts["times_faster"] or _LEAST_GAIN) >= _LEAST_GAIN:
        report.say(f"to quantise it: tilewright quantise {model} --calibration X.npz, with samples of its inputs")


def _language_model(
    model: str,
    output: str | None,
    calibration: str | None,
    tokenizer: str | None,
    context: int | None,
    measured_on: str | None,
    weight_bits: int,
    form: str | None,
    force: bool,
    room: Callable[[bool], None],
) -> dict[str, Any]:
    """Write the integers of a Llama: their facts for JSON. `room` raises where a board has none for the wide form."""
    count = whole_number(str(_TEXTS) if measured_on is None else measured_on)
    file = measured_on if count is None else None
    if tokenizer is not None and calibration is None and file is None:
        raise click.UsageError(
            f"--tokenizer {tokenizer} is for the texts of --calibration or --texts FILE; give one of them"
        )
    if count == 0 and not force:
        raise click.UsageError("--texts 0 measures nothing, so that a bad model would be written; give --force, too")
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output': the file of integers to write, X.npz")
    sources = {"MODEL": model, "--tokenizer": tokenizer, "--calibration": calibration, "--texts": file}
    check_output(output, (".npz",), sources)
    sizes = describe(read_source(model, context=context)).sizes
    codec = None if calibration is None and file is None else open_codec(model, tokenizer, sizes.words)
    files = (calibration, "a text file"), (file, "a number of texts or a text file")
    lines, others = (_lines(path, wanted, codec, sizes) if codec and path else [] for path, wanted in files)
    if file is not None and calibration is not None and Path(file).samefile(calibration):
        raise click.UsageError(f"--texts {file} is the file of --calibration; give a number N: every fourth line of it")
    held = range(0)
    if lines and count:
        if len(lines) == 1:
            raise FileError(
                f"{calibration}: holds one line, and measuring needs another; add lines, or give --texts FILE"
            )
        held = range(3, len(lines), 4)[:count] or range(len(lines) - 1, len(lines))
        others = [lines[k] for k in held]
    given = [text for k, texts in enumerate(lines) if k not in held for text in texts]
    measured = [text for texts in others for text in texts][:count]
    checkpoint = read_checkpoint(read_source(model, context=context))
    with report.progress(f"quantising {model}") as advance:
        integers = integers_of(checkpoint, given, form, weight_bits)
        room(integers.form == WideIntegers.form)
        step_of(integers)  # raises for one that cannot be computed
        measured = measured or (measured_texts(checkpoint, count) if count else [])
        advance(what=f"perplexity on {report.counted(len(measured), 'text')}")
        loss = perplexities(checkpoint, logits_of(integers, sizes.context), measured) if measured else None
        if loss and loss.integers > _MOST_LOSS * loss.float32 and not force:
            raise UnsupportedError(
                f"{model}: the {integers.form} form has a perplexity of {loss.integers:.3f} in integers, "
                f"{loss.float32:.3f} in float32: more than twice as much; "
                f"{'give --form wide' if integers.form != 'wide' else 'calibrate with other texts'}, or write it "
                "all the same with --force"
            )
        integers.save(output)
    facts = {"model": model, "integers": output, "bytes": Path(output).stat().st_size, "form": integers.form}
    facts |= {"weight_bits": weight_bits, "texts": len(measured), "tokens": sum(map(len, measured))}
    return facts | (loss.facts() if loss else {})


def _say_language_model(facts: dict[str, Any]) -> None:
    bits = "" if facts["weight_bits"] == 8 else f", weights of {facts['weight_bits']} bits"
    report.say(f"{facts['integers']}: {facts['form']} form{bits}, {facts['bytes'] / 1000:,.0f} kB")
    if "perplexity" in facts:
        report.say_loss(facts)


def _lines(path: str, wanted: str, codec: TextCodec, sizes: Sizes) -> list[list[list[int]]]:
    """The texts of each line of a file, tokens, at most `LENGTH` in each. Raises `FileError` for a file without."""
    text = read_regular(path, wanted, TEXT_BYTES).decode(errors="replace")
    size = max(min(LENGTH, sizes.context) - len(codec.begin), 1)
    lines = [codec.encode(line.strip()) for line in text.splitlines() if line.strip()]
    texts = [[[*codec.begin, *line[k : k + size]] for k in range(0, len(line), size)] for line in lines if line]
    if not texts:
        raise FileError(f"{path}: holds no text; give a file with a text in each line")
    return texts
