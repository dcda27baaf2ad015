"""Text to tokens and back: what a codec is, and codecs of pieces with scores, as llama2.c's files have them."""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..hw.errors import FileError, InputError
from ..hw.foreign import TEXT_BYTES, read_regular

BEGIN = 1  # of llama2.c: the token before every text, which also ends it
NOTHING = -1  # stands for the token before the first
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")  # the piece of one byte
_GONE = -1  # marks a token that was merged into the token before it
_HEADER, _ENTRY = struct.Struct("<i"), struct.Struct("<fi")


class TextCodec(Protocol):
    """Text to tokens and back.

    `begin` are the tokens before every text, and `ends` those with which one ends. `template` is the chat template, in
    Jinja, None where the model has none; `named` are special tokens as a text writes them, by the names that templates
    have for them: bos_token and eos_token, where the model has them.
    """

    begin: tuple[int, ...]
    ends: frozenset[int]
    template: str | None
    named: Mapping[str, str]

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
        return b"".join(map(self.piece, [*(self.begin[-1:] or [NOTHING]), *tokens], tokens)).decode(errors="replace")


def spelled(piece: bytes) -> bytes:
    """The byte that a piece such as `<0x41>` stands for; any other piece itself."""
    byte = _BYTE.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece


class Pieces(TextCodec):
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
        named: Mapping[str, str] | None = None,
    ):
        self.pieces, self.scores, self.begin, self.ends, self.template = pieces, scores, begin, ends, template
        self._names, self._always, self._spaced, self.named = names or {}, always, spaced, named or {}
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
        return spelled(piece)


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
