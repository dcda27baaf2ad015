"""Text in and out of a network with a vocabulary: a tokenizer, and the writing of a text."""

from __future__ import annotations

import contextlib
import heapq
import math
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from ..hw.errors import FileError, InputError, UnsupportedError
from ..hw.foreign import TEXT_BYTES, open_regular, read_regular
from .arrays import Array
from .executable import Executable, LaunchStep
from .formats import GGUF, SAFETENSORS_FOLDER, recognise
from .gguf import MAGIC
from .loader import Inputs, Outputs
from .steps import When

BEGIN = 1  # of llama2.c: the token before every text, which also ends it
NOTHING = -1  # stands for the token before the first
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")  # the piece of one byte
_GONE = -1  # marks a token that was merged into the token before it
_START = 64  # bytes of a file in which JSON begins
_HEADER, _ENTRY = struct.Struct("<i"), struct.Struct("<fi")
Choose = Callable[[Array], int]  # of the logits, float32 (words,)
_COLDEST = 1e-200  # below it quotients of float32 logits would overflow; all others but the largest have weight 0 there


class TextCodec(Protocol):
    """Text to tokens and back.

    `begin` are the tokens before every text, and `ends` those with which one ends. `template` is the chat template, in
    Jinja, None where the model has none.
    """

    begin: tuple[int, ...]
    ends: frozenset[int]
    template: str | None

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of `text`, without `begin`; with `special` the names of special tokens stand for these.

        Raises `InputError` for a text that has no tokens.
        """
        ...

    def piece(self, previous: int, token: int) -> bytes:
        """The bytes that `token` adds to a text after the token `previous`; they may be part of a character.

        `previous` is `NOTHING` for the first token of a text without `begin`.
        """
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, which follow `begin`."""
        ...


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
    from .vocabulary import read_codec

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


class Pieces:
    """A `TextCodec` of pieces of text, which are merged by their scores, the highest first.

    `names` are special tokens, by how a text writes them, `always` those of them that every text means. No text merges
    to the tokens `apart`. With `spaced` a space comes before a text, and before each part behind a special token.
    """

    def __init__(
        self,
        pieces: list[bytes],
        scores: list[float],
        begin: tuple[int, ...] = (BEGIN,),
        ends: frozenset[int] = frozenset({BEGIN}),
        template: str | None = None,
        names: Mapping[str, int] | None = None,
        always: Collection[str] = (),
        apart: Collection[int] = (),
        spaced: bool = True,
    ):
        self.pieces, self.scores, self.begin, self.ends, self.template = pieces, scores, begin, ends, template
        self._names, self._always, self._spaced = names or {}, always, spaced
        numbered = [(piece, k) for k, piece in enumerate(pieces)]
        self._tokens = {piece: k for piece, k in reversed(numbered) if k not in apart}
        bytes_ = ((_BYTE.fullmatch(piece), k) for piece, k in reversed(numbered))
        self._bytes = {int(byte[1], 16): k for byte, k in bytes_ if byte}

    def encode(self, text: str, special: bool = False) -> list[int]:
        """As of `TextCodec`. Raises `InputError` for a character without a token."""
        names = self._names if special else {name: self._names[name] for name in self._always}
        longest_first = sorted(map(re.escape, names), key=len, reverse=True)
        parts = re.split(f"({'|'.join(longest_first)})", text) if names else [text]
        return [token for part in parts for token in ([names[part]] if part in names else self._of_text(part))]

    def _of_text(self, text: str) -> list[int]:
        space = [self._tokens[b" "]] if self._spaced and text and b" " in self._tokens else []
        return self._merged([*space, *(token for character in text for token in self._spelled(character))])

    def _merged(self, tokens: list[int]) -> list[int]:
        """`tokens` with neighbours merged while two of them make a piece: by score, then from the left."""
        after, before = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens) - 1))
        heap: list[tuple[float, int, int, tuple[int, int]]] = []  # so that long prompts take no square of their length

        def offer(k: int) -> None:
            if k >= 0 and after[k] < len(tokens):
                pair = tokens[k], tokens[after[k]]
                token = self._tokens.get(self.pieces[pair[0]] + self.pieces[pair[1]])
                if token is not None:
                    heapq.heappush(heap, (-self.scores[token], k, token, pair))

        for k in range(len(tokens)):
            offer(k)
        while heap:
            _, k, token, pair = heapq.heappop(heap)
            gone = after[k]
            if gone == len(tokens) or (tokens[k], tokens[gone]) != pair:
                continue  # one token of the pair is part of another piece by now
            tokens[k], tokens[gone], after[k] = token, _GONE, after[gone]
            if after[k] < len(tokens):
                before[after[k]] = k
            offer(before[k])
            offer(k)
        return [token for token in tokens if token != _GONE]

    def _spelled(self, character: str) -> list[int]:
        try:
            encoded = character.encode()
        except UnicodeEncodeError:
            raise InputError(f"the prompt holds {character!r}, which is no character; give a text in UTF-8") from None
        if encoded in self._tokens:
            return [self._tokens[encoded]]
        if not self._bytes.keys() >= set(encoded):
            raise InputError(f"the prompt holds {character!r}, for which the tokenizer has no token")
        return [self._bytes[byte] for byte in encoded]

    def piece(self, previous: int, token: int) -> bytes:
        """As of `TextCodec`. The first piece of a text loses its space."""
        piece = self.pieces[token]
        if self._spaced and previous in (*self.begin[-1:], NOTHING):
            piece = piece.removeprefix(b" ")
        byte = _BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece

    def decode(self, tokens: Sequence[int]) -> str:
        """As of `TextCodec`."""
        return b"".join(map(self.piece, [*(self.begin[-1:] or [NOTHING]), *tokens], tokens)).decode(errors="replace")


class Tokenizer(Pieces):
    """The `TextCodec` in a file of llama2.c.

    Raises `FileError` for a file that does not hold exactly `size` pieces.
    """

    def __init__(self, path: str | Path, size: int):
        super().__init__(*_read(Path(path), size))


def _read(path: Path, size: int) -> tuple[list[bytes], list[float]]:
    data = read_regular(path, "a tokenizer", TEXT_BYTES)
    pieces, scores, at = list[bytes](), list[float](), _HEADER.size
    for _ in range(size):
        if at + _ENTRY.size > len(data):
            raise FileError(f"{path}: holds {len(pieces)} pieces, the model has {size} words; give its own tokenizer")
        score, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if math.isnan(score):
            raise FileError(f"{path}: the score of piece {len(pieces)} is not a number; the file is damaged")
        if not 0 <= length <= len(data) - at:
            raise FileError(f"{path}: piece {len(pieces)} has {length} bytes, of which {len(data) - at} are there")
        pieces.append(data[at : at + length])
        scores.append(score)
        at += length
    if at != len(data):
        raise FileError(f"{path}: holds more than the {size} words of the model; give its own tokenizer")
    return pieces, scores


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
            limits = [len(step.constants["cosine"])] if step.op in ("rotate", "rotate_pairs") and "position" in step.inputs else []
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
