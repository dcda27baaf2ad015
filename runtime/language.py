"""The codec of a language model, and its sizes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from ..hw.errors import FileError, UnsupportedError
from ..hw.foreign import open_regular
from .executable import Executable, LaunchStep
from .formats import GGUF, SAFETENSORS_FOLDER, recognise
from .gguf import MAGIC
from .pieces import BEGIN, NOTHING, TextCodec, Tokenizer
from .steps import When
from .vocabulary import read_codec

__all__ = [
    "BEGIN",
    "NOTHING",
    "LanguageModel",
    "TextCodec",
    "Tokenizer",
    "codec_file",
    "language_model",
    "open_codec",
]
_START = 64  # bytes of a file in which JSON begins


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


class LanguageModel(NamedTuple):
    """The longest text of a language model, in tokens, its words, and how many tokens a run may take together.

    Values of `pending` tokens wait in a state of their own before they go into the cache together.
    """

    context: int
    words: int
    block: int
    pending: int = 1


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
    pending = next((t.shape[2] for t in executable.states if t.name.endswith(".values.block")), 1)
    return LanguageModel(_context(executable, caches[0]), executable.outputs[0].shape[1], block, pending)


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
