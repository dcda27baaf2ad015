"""Text in and out of a network with a vocabulary: the codec of a model, and the writing of a text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from ..hw.errors import FileError, InputError, UnsupportedError
from ..hw.foreign import open_regular
from .arrays import Array
from .executable import Executable, LaunchStep
from .formats import GGUF, SAFETENSORS_FOLDER, recognise
from .gguf import MAGIC
from .loader import Inputs, Outputs
from .pieces import BEGIN, NOTHING, TextCodec, Tokenizer
from .steps import When
from .vocabulary import read_codec

__all__ = [
    "BEGIN",
    "NOTHING",
    "Choose",
    "LanguageModel",
    "Runs",
    "Step",
    "TextCodec",
    "Tokenizer",
    "codec_file",
    "language_model",
    "most_likely",
    "open_codec",
    "sampler",
    "write",
]
_START = 64  # bytes of a file in which JSON begins
Choose = Callable[[Array], int]  # of the logits, float32 (words,)
_COLDEST = 1e-200  # below it quotients of float32 logits would overflow; all others but the largest have weight 0 there


def open_codec(model: str | Path, tokenizer: str | Path | None, words: int) -> TextCodec:
    """The codec in the file `tokenizer`, or in that of the `model`, which has so many `words`.

    It is a file of llama2.c, a tokenizer.json, a GGUF file, or a folder with a tokenizer.json. Raises `FileError` for
    one that is damaged or of another model, `UnsupportedError` for one of a kind that is not read, and as `codec_file`.
    """
    path = codec_file(model, tokenizer)
    with contextlib.suppress(IsADirectoryError), open(path, "rb") as file:
        start = file.read(_START).lstrip()
        if not start.startswith((b"{", MAGIC)):
            return Tokenizer(path, words)
    return read_codec(path, words)


def codec_file(model: str | Path, tokenizer: str | Path | None) -> Path:
    """The file or folder that `open_codec` reads. Raises `FileError` where there is none."""
    path = Path(model if tokenizer is None else tokenizer)
    if tokenizer is None and recognise(path) not in (GGUF, SAFETENSORS_FOLDER):
        raise FileError(f"{path}: brings no tokenizer; give the model's own with --tokenizer")
    if not path.is_dir():
        with open_regular(path, "a tokenizer"):  # what cannot be read is refused
            pass
    return path


class Runs(Protocol):
    """A program that is run step by step and keeps its state: a `Loaded`, or one on a server."""

    def run(self, inputs: Inputs) -> Outputs:
        """Outputs by name."""
        ...


@dataclass(frozen=True)
class Step:
    """One run: the tokens that went in, from `position` on, and the logits for the token after the last of them.

    `following` is that token, None where the text ended.
    """

    tokens: tuple[int, ...]
    position: int
    logits: Array
    following: int | None


class LanguageModel(NamedTuple):
    """The longest text of a language model, in tokens, its words, and how many tokens a run may take together."""

    context: int
    words: int
    block: int


def language_model(executable: Executable) -> LanguageModel:
    """The sizes of a program that is one step of a language model. Raises `UnsupportedError` for another.

    A cache of keys is (1, lanes, context, 1), plain or packed to blocks of lanes, a cache of both keys and values
    (context, elements). A second entry takes a block of tokens of a text together.
    """
    inputs = [{t.name: (t.shape, t.dtype) for t in entry} for entry in executable.entries]
    outputs = [(t.name, t.dtype, len(t.shape)) for t in executable.outputs]
    names, ranks = (".keys.cache", ".tokens.cache"), {4: 2, 6: 2, 2: 0}  # ranks: the dimension of positions
    caches = [t.shape[ranks[n]] for t in executable.states if t.name.endswith(names) and (n := len(t.shape)) in ranks]
    wanted = [{"token": ((1,), "int32"), "position": ((1,), "int32")}]
    block = next((t.shape[0] for t in executable.inputs if t.name == "tokens" and len(t.shape) == 1), 1)
    if len(inputs) > 1:
        wanted.append({"tokens": ((block,), "int32"), "block": ((1,), "int32")})
    if inputs != wanted or outputs != [("logits", "float32", 2)] or not caches:
        raise UnsupportedError(
            f"program {executable.name!r} is no language model: its inputs must be `token` and `position`, its output "
            "`logits`; give a checkpoint of llama2.c, .bin, or what `compile` made of one"
        )
    return LanguageModel(_context(executable, caches[0]), executable.outputs[0].shape[1], block)


def _context(executable: Executable, room: int) -> int:
    """For how many positions there are steps and angles, at most as many as a cache has `room` for."""
    ends: dict[When | None, int] = {}  # of the steps that run together
    for step in executable.steps:
        if isinstance(step, LaunchStep):
            limits = [step.launch.patches.limits[key] for key, name in step.symbols.items() if name == "position"]
        else:
            limits = (
                [len(step.constants["cosine"])]
                if step.op in ("rotate", "rotate_pairs") and "position" in step.inputs
                else []
            )
        ends[step.when] = min([*limits, ends.get(step.when, room)])
    always = ends.pop(None, room)
    return min(always, max((end for when, end in ends.items() if when and when.tensor == "position"), default=room))


def write(
    program: Runs,
    model: LanguageModel,
    prompt: Sequence[int],
    count: int,
    choose: Choose,
    ends: Collection[int] = (BEGIN,),
) -> Iterator[Step]:
    """Run the program on `prompt`, then on the tokens that `choose` takes from the logits, up to `count` tokens.

    Whole blocks of the prompt go in together where the program takes blocks, the rest token by token. A text ends
    earlier where one of `ends` is chosen. Raises `InputError` where prompt or count do not fit the context.
    """
    context = model.context
    if not prompt:
        raise InputError("the prompt has no tokens, and the model none that begins a text; give a prompt")
    if len(prompt) >= context:
        raise InputError(f"the prompt has {len(prompt)} tokens, the context {context}; shorten the prompt")
    if len(prompt) >= count:
        least = len(prompt) + 1
        raise InputError(f"the prompt has {len(prompt)} tokens, {count} are wanted in all; ask for at least {least}")
    if count > context:
        raise InputError(f"{count} tokens do not fit the context of {context}; ask for fewer")
    tokens, position = list(prompt), 0
    while position < count - 1:
        given = tuple(tokens[position : position + model.block])
        if position % model.block or len(given) < model.block:
            given = given[:1]
        logits = program.run(_inputs(given, position))["logits"][0]
        after, ended = position + len(given), False
        if after == len(tokens):
            tokens.append(choose(logits))
            ended = tokens[after] in ends
        yield Step(given, position, logits, None if ended else tokens[after])
        if ended:
            return
        position = after


def _inputs(tokens: Sequence[int], position: int) -> dict[str, Array]:
    """The inputs of a run that takes `tokens`, from `position` on."""
    ids = np.array(tokens, np.int32)
    if len(tokens) == 1:
        return {"token": ids, "position": np.array([position], np.int32)}
    return {"tokens": ids, "block": np.array([position // len(tokens)], np.int32)}


def most_likely(logits: Array) -> int:
    """The token with the largest logit, the first of several."""
    return int(logits.argmax())


def sampler(temperature: float, seed: int) -> Choose:
    """Chooses tokens at random, by their probabilities at a temperature above 0; the seed fixes the sequence."""
    if not (temperature > 0 and np.isfinite(temperature)):
        raise InputError(
            f"temperature {temperature}: must be a finite number above 0; leave it out to take the most likely token"
        )
    rng = np.random.default_rng(seed)

    def choose(logits: Array) -> int:
        scores = logits.astype(np.float64)
        weights = np.exp((scores - scores.max()) / max(temperature, _COLDEST))
        return int(rng.choice(len(weights), p=weights / weights.sum()))

    return choose
