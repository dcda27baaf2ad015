"""`tilewright quantise`: a float network becomes an int8 network, a checkpoint its integers; accuracy is measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..compiler.frontend.llama.checkpoint import Checkpoint, read_checkpoint
from ..compiler.frontend.llama.measure import perplexity
from ..compiler.frontend.llama.quantise import LENGTH, calibrate, quantised
from ..compiler.frontend.llama.step import decoder_step
from ..compiler.frontend.source import check_kind, kind_of
from ..hw.config import Config, load_config
from ..hw.errors import FileError, InputError, TilewrightError, UnsupportedError
from ..hw.foreign import TEXT_BYTES, read_npz, read_regular
from ..runtime.files import atomic_write
from ..runtime.language import Tokenizer
from . import report
from .options import config_option, json_option
from .programs import check_output

if TYPE_CHECKING:
    from ..apps.quantise.samples import Pictures
    from ..apps.quantise.static import Quantised

_SHOWN = 8  # operators that lose most
_LANGUAGE_MODELS = (".bin",)


class _Shape(click.ParamType):
    """`x=1,3,224,224`, or with `x` between the sizes."""

    name = "shape"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, tuple[int, ...]]:
        name, _, sizes = str(value).rpartition("=")
        if not name or not re.fullmatch(r"\d+([x,]\d+)*", sizes):
            self.fail(f"{value!r} is no shape; give one as x=1,3,224,224", param, ctx)
        return name, tuple(int(size) for size in re.split("[x,]", sizes))


class _Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "numbers"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[float, ...]:
        try:
            return tuple(float(number) for number in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of numbers; give one as 0.485,0.456,0.406", param, ctx)


@click.command()
@click.argument("model")
@click.option(
    "-o", "--output", metavar="OUT", help="The file to write. [NET.int8.onnx; a checkpoint's needs a name, X.npz]"
)
@click.option(
    "--calibration",
    metavar="X.npz|X.npy|DIR|FILE.txt",
    help="What ranges are measured on: samples, or a folder of pictures; for a checkpoint a text in each line, in place "
    "of texts that the model writes.",
)
@click.option("--labels", metavar="FILE", help="The right class of each sample, .npy or .npz; else those of X.npz.")
@click.option(
    "--shape",
    "shapes",
    type=_Shape(),
    multiple=True,
    metavar="NAME=1,3,H,W",
    help="Sizes of an input that has open ones.",
)
@click.option("--mean", type=_Numbers(), metavar="M[,M,M]", help="Pixels: the mean of each channel, from 0 to 1. [0]")
@click.option("--std", type=_Numbers(), metavar="S[,S,S]", help="Pixels: the deviation of each channel. [1]")
@click.option("--resize", is_flag=True, help="Pixels: bring pictures to the size of the input.")
@click.option("--keep", multiple=True, metavar="NAME", help="Leave this operator in float; may be given several times.")
@click.option("--inspect", is_flag=True, help="Write nothing, need no data: say what will run where after quantising.")
@config_option(
    help_text="Predict times for it: preset, VTA configuration string, or JSON file of configuration fields."
)
@click.option("--tokenizer", metavar="FILE.bin", help="Of a checkpoint: its tokenizer, as llama2.c has it.")
@click.option(
    "--texts",
    default=16,
    type=click.IntRange(min=0),
    show_default=True,
    metavar="N",
    help="Of a checkpoint: print the perplexity on N texts that the model writes, others than those of the scales.",
)
@json_option
def command(
    model: str,
    output: str | None,
    calibration: str | None,
    labels: str | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    mean: tuple[float, ...] | None,
    std: tuple[float, ...] | None,
    resize: bool,
    keep: tuple[str, ...],
    inspect: bool,
    config: str,
    tokenizer: str | None,
    texts: int,
    as_json: bool,
) -> None:
    """Quantise MODEL, a float network (.onnx) or a checkpoint of llama2.c (.bin), to int8.

    A network gets int8 activations, and int8 weights with a scale for each output channel, by onnxruntime's quantiser.
    Ranges are measured in three ways, layers are equalised and biases corrected where that helps, and operators that
    lose much may stay in float; the most accurate network is written. The tables compare it with the float network on
    every fourth sample, which no range was measured on, and say the predicted times before and after. Samples are
    arrays by the names of inputs, of one input or of many, or pictures; what `run` takes of them, it takes, too.

    A checkpoint becomes its integers, X.npz, which `generate`, `compile` and the other verbs take as they take the
    checkpoint.
    """
    check_kind(model)
    if tokenizer is not None and calibration is None:
        raise click.UsageError(f"--tokenizer {tokenizer} is for the texts of --calibration; give both or neither")
    if kind_of(model) in _LANGUAGE_MODELS:
        given = {"--labels": labels, "--shape": shapes, "--mean": mean, "--std": std, "--resize": resize}
        for option, value in (given | {"--keep": keep, "--inspect": inspect}).items():
            if value:
                raise UnsupportedError(f"{model}: {option} is for networks, .onnx; drop it")
        _language_model(model, output, calibration, tokenizer, texts, as_json)
        return
    if tokenizer is not None:
        raise UnsupportedError(f"{model}: --tokenizer is for a checkpoint, .bin; drop it")
    if kind_of(model) != ".onnx":
        raise UnsupportedError(
            f"{model}: is no float network in ONNX, .onnx, and no checkpoint, .bin; export it as ONNX"
        )
    from ..apps.quantise.samples import Pictures

    pixels = Pictures(mean or (0.0,), std or (1.0,), resize) if mean or std or resize else None
    cfg = load_config(config)
    if inspect:
        _inspect(model, dict(shapes), cfg, as_json)
        return
    if calibration is None:
        raise click.UsageError(
            "Missing option '--calibration': samples to measure ranges on; or --inspect without data"
        )
    output = output or f"{Path(model).with_suffix('')}.int8.onnx"
    check_output(output, (".onnx",), {"MODEL": model, "--calibration": calibration, "--labels": labels})
    _network(model, output, calibration, labels, dict(shapes), pixels, keep, cfg, as_json)


def _network(
    model: str,
    output: str,
    calibration: str,
    labels: str | None,
    shapes: dict[str, tuple[int, ...]],
    pixels: Pictures | None,
    keep: tuple[str, ...],
    cfg: Config,
    as_json: bool,
) -> None:
    from ..apps.quantise.onnx_network import inputs_of, need_libraries, prepare, read_onnx
    from ..apps.quantise.samples import read_samples
    from ..apps.quantise.static import quantise
    from ..apps.quantise.times import predict, predict_float

    need_libraries()
    with report.progress(f"reading {model}") as advance:
        whole = read_onnx(model)
        samples = read_samples(calibration, inputs_of(prepare(whole, model, shapes)), pixels)
        if labels is not None:
            samples.labels = _labels(labels, len(samples))
        found = quantise(whole, samples, model, shapes, keep=keep, tell=lambda step: advance(what=f"{model}: {step}"))
        with atomic_write(output) as temporary:
            Path(temporary).write_bytes(found.network.SerializeToString())
        advance(what=f"predicting times on {cfg.name}")
        before, after = _tried(predict_float, found.whole, model), _tried(predict, found.network, output, cfg)
    facts = _facts(found, output, len(samples), samples.notes)
    facts |= {"config": cfg.name, "float": before, "int8": after}
    if as_json:
        report.emit_json(facts)
        return
    for note in samples.notes:
        report.say(note)
    _print(found, facts)


def _tried(work: Any, *given: Any) -> dict[str, Any]:
    """A prediction, or why there is none: the network is written in any case."""
    try:
        return vars(work(*given))
    except TilewrightError as exc:
        return {"ms": None, "on_device": None, "why": str(exc)}


def _facts(found: Quantised, output: str, samples: int, notes: list[str]) -> dict[str, Any]:
    best = found.comparison
    ways = [{"way": str(way), "kept": [*way.kept], **_figures(c)} for way, c in found.tried.items()]
    return {
        "network": output,
        "samples": samples,
        "notes": notes,
        "way": str(found.way),
        "kept": [*found.way.kept],
        **_figures(best),
        "ways": ways,
        "not_used": dict(found.refused),
        "operators": [vars(loss) for loss in best.operators],
    }


def _figures(comparison: Any) -> dict[str, Any]:
    names = ("snr_db", "agreement", "float_accuracy", "int8_accuracy")
    return {name: getattr(comparison, name) for name in names}


def _print(found: Quantised, facts: dict[str, Any]) -> None:
    names = {"snr_db": "SNR dB", "agreement": "same class %", "int8_accuracy": "right %"}
    used = {key: name for key, name in names.items() if facts[key] is not None}
    rows = [[way["way"], *(way[key] * (1 if key == "snr_db" else 100) for key in used)] for way in facts["ways"]]
    report.table(["ranges and form", *used.values()], rows)
    losses = sorted(found.comparison.operators, key=lambda loss: -loss.lost_db)[:_SHOWN]
    report.table(["operator", "kind", "SNR dB", "lost dB"], [[o.name, o.kind, o.snr_db, o.lost_db] for o in losses])
    for method, why in facts["not_used"].items():
        report.say(f"{method} is not used: {why}")
    if facts["kept"]:
        report.say(f"in float, as they lose most: {', '.join(facts['kept'])}")
    if facts["float_accuracy"] is not None:
        report.say(
            f"right: {100 * facts['float_accuracy']:.1f} % in float, {100 * facts['int8_accuracy']:.1f} % in int8"
        )
    before, after = facts["float"], facts["int8"]
    for name, one in (("float", before), ("int8", after)):
        if one["ms"] is None:
            report.say(f"no time of the {name} network: {one['why']}")
    if before["ms"] and after["ms"]:
        share = (
            ""
            if after["on_device"] is None
            else f", {100 * after['on_device']:.1f} % of the products on the accelerator"
        )
        report.say(
            f"an inference on {facts['config']}, modelled: {before['ms']:,.1f} ms in float on the host, {after['ms']:,.1f} "
            f"ms in int8 ({before['ms'] / after['ms']:,.0f} times faster{share})"
        )
    report.say(
        f"{facts['network']}: {facts['way']}, signal to noise {facts['snr_db']:.1f} dB; run it with tilewright run"
    )


def _labels(path: str, count: int) -> np.ndarray:
    """The labels of `count` samples in a .npy file, or in a .npz file under `labels` or alone."""
    if path.endswith(".npy"):
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as exc:
            raise FileError(f"{path}: cannot be read as an array of labels ({exc})") from None
    else:
        arrays = read_npz(path)
        if "labels" not in arrays and len(arrays) != 1:
            raise InputError(f"{path}: holds {', '.join(arrays) or 'nothing'}; give one array, or name it `labels`")
        found = arrays.get("labels", next(iter(arrays.values())))
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise InputError(f"{path}: labels have shape {found.shape} and type {found.dtype}; give {count} integers")
    return found


def _inspect(model: str, shapes: dict[str, tuple[int, ...]], cfg: Config, as_json: bool) -> None:
    """Quantise on random samples in memory, and show where each kind of operator would run."""
    from ..apps.quantise.onnx_network import inputs_of, need_libraries, prepare, read_onnx
    from ..apps.quantise.samples import samples_of
    from ..apps.quantise.static import quantise
    from ..apps.quantise.times import placed, predict_float

    need_libraries()
    with report.progress(f"inspecting {model}"):
        whole = read_onnx(model)
        prepared = prepare(whole, model, shapes)
        rng = np.random.default_rng(0)
        arrays = {}
        for i in inputs_of(prepared):
            shape = (1, *(d or 1 for d in i.shape))
            arrays[i.name] = (rng.uniform(-1, 1, shape) if i.dtype.kind == "f" else rng.integers(0, 2, shape)).astype(
                i.dtype
            )
        found = quantise(
            whole, samples_of(arrays, inputs_of(prepared), model), model, shapes, methods=("minmax",), search=False
        )
        before = _tried(predict_float, found.whole, model)
        after, rows = placed(found.network, model, cfg)
    if as_json:
        report.emit_json({"config": cfg.name, "float": before, "int8": vars(after), "operators": rows})
        return
    report.records(rows)
    share = "" if after.on_device is None else f", {100 * after.on_device:.1f} % of the products on the accelerator"
    was = "" if before["ms"] is None else f"{before['ms']:,.1f} ms in float on the host, "
    report.say(f"an inference on {cfg.name}, modelled: {was}{after.ms:,.1f} ms in int8{share}")
    report.say(f"to quantise it: tilewright quantise {model} --calibration X.npz, with samples of its inputs")


def _language_model(
    model: str, output: str | None, calibration: str | None, tokenizer: str | None, texts: int, as_json: bool
) -> None:
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output': the file of integers to write, X.npz")
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
