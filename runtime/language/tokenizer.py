"""Byte pair encoding as llama2.c has it: texts to tokens and back, from its tokenizer files."""

from __future__ import annotations

import heapq
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from ...hw.errors import FileError, InputError
from ...hw.foreign import TEXT_BYTES, read_regular

BEGIN = 1  # the token before every text, and the one that ends it
_BYTES = 3  # the token of byte 0
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")  # the piece of one byte
_GONE = -1  # in place of a token that became part of the one before
_HEADER, _ENTRY = struct.Struct("<i"), struct.Struct("<fi")


class Tokenizer:
    """The pieces of text that a vocabulary has, with the scores by which they are merged.

    Raises `FileError` for a file that does not hold exactly `size` pieces.
    """

    def __init__(self, path: str | Path, size: int):
        self.pieces, self.scores = _read(Path(path), size)
        self._tokens = {piece: k for k, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str) -> list[int]:
        """The tokens of `text`, behind the one that begins a text.

        Pieces are merged by the highest score first. Raises `InputError` for what no token stands for.
        """
        space = [self._tokens[b" "]] if text and b" " in self._tokens else []
        return self._merged([BEGIN, *space, *(token for character in text for token in self._spelled(character))])

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
                continue  # one of them is part of another piece by now
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
        """The bytes that `token` adds to a text behind the token `previous`; they may be part of a character."""
        piece = self.pieces[token]
        if previous == BEGIN:
            piece = piece.removeprefix(b" ")
        byte = _BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, the first of which begins it."""
        return b"".join(map(self.piece, tokens, tokens[1:])).decode(errors="replace")


def _read(path: Path, size: int) -> tuple[list[bytes], list[float]]:
    data = read_regular(path, "a tokenizer", TEXT_BYTES)
    pieces, scores, at = [], [], _HEADER.size
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
