"""Text to the tokens of a network with a vocabulary and back, and the sizes of a language model."""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ..hw.errors import FileError, InputError, UnsupportedError
from ..hw.foreign import TEXT_BYTES, read_regular
from .executable import Executable, LaunchStep
from .steps import When

BEGIN = 1  # of llama2.c: the token before every text, which also ends it
NOTHING = -1  # stands for the token before the first
_BYTES = 3  # the token of byte 0
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")  # the piece of one byte
_GONE = -1  # marks a token that was merged into the token before it
_HEADER, _ENTRY = struct.Struct("<i"), struct.Struct("<fi")


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

    Raises `FileError` for a file that is damaged or of another model, and where there is no tokenizer.
    """
    if tokenizer is None:
        raise FileError(f"{model}: has no tokenizer of its own; give it with --tokenizer")
    return Tokenizer(tokenizer, words)


class Tokenizer:
    """A `TextCodec` of llama2.c: the pieces of text that a vocabulary has, with the scores by which they are merged.

    Raises `FileError` for a file that does not hold exactly `size` pieces.
    """

    begin, ends, template = (BEGIN,), frozenset({BEGIN}), None

    def __init__(self, path: str | Path, size: int):
        self.pieces, self.scores = _read(Path(path), size)
        self._tokens = {piece: k for k, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The tokens of `text`; none of them has a name.

        Pieces are merged by the highest score first. Raises `InputError` for a character without a token.
        """
        space = [self._tokens[b" "]] if text and b" " in self._tokens else []
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
        spelled = [_BYTES + byte for byte in encoded]
        for byte, token in zip(encoded, spelled):
            if token >= len(self.pieces) or self.pieces[token] != b"<0x%02X>" % byte:
                raise InputError(f"the prompt holds {character!r}, for which the tokenizer has no token")
        return spelled

    def piece(self, previous: int, token: int) -> bytes:
        """As of `TextCodec`. The first piece of a text loses its space."""
        piece = self.pieces[token]
        if previous in (BEGIN, NOTHING):
            piece = piece.removeprefix(b" ")
        byte = _BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`."""
        return b"".join(map(self.piece, [*self.begin, *tokens], tokens)).decode(errors="replace")


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


class LanguageModel(NamedTuple):
    """The longest text of a language model, in tokens, its words, and how many tokens a run may take together."""

    context: int
    words: int
    block: int


def language_model(executable: Executable) -> LanguageModel:
    """The sizes of a program that is one step of a language model. Raises `UnsupportedError` for another.

    A cache of keys is (1, lanes, context, 1), plain or packed to blocks of lanes. A second entry takes a block of
    tokens of a text together.
    """
    inputs = [{t.name: (t.shape, t.dtype) for t in entry} for entry in executable.entries]
    outputs = [(t.name, t.dtype, len(t.shape)) for t in executable.outputs]
    caches = [t.shape for t in executable.states if t.name.endswith(".keys.cache") and len(t.shape) in (4, 6)]
    wanted = [{"token": ((1,), "int32"), "position": ((1,), "int32")}]
    block = next((t.shape[0] for t in executable.inputs if t.name == "tokens" and len(t.shape) == 1), 1)
    if len(inputs) > 1:
        wanted.append({"tokens": ((block,), "int32"), "block": ((1,), "int32")})
    if inputs != wanted or outputs != [("logits", "float32", 2)] or not caches:
        raise UnsupportedError(
            f"program {executable.name!r} is no language model: its inputs must be `token` and `position`, its output "
            "`logits`; give a checkpoint of llama2.c, .bin, or what `compile` made of one"
        )
    return LanguageModel(_context(executable, caches[0][2]), executable.outputs[0].shape[1], block)


def _context(executable: Executable, room: int) -> int:
    """For how many positions there are steps and angles, at most as many as a cache has `room` for."""
    ends: dict[When | None, int] = {}  # of the steps that run together
    for step in executable.steps:
        if isinstance(step, LaunchStep):
            limits = [step.launch.patches.limits[key] for key, name in step.symbols.items() if name == "position"]
        else:
            limits = [len(step.constants["cosine"])] if step.op == "rotate" and "position" in step.inputs else []
        ends[step.when] = min([*limits, ends.get(step.when, room)])
    always = ends.pop(None, room)
    return min(always, max((end for when, end in ends.items() if when and when.tensor == "position"), default=room))
