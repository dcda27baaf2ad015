"""The words of a language model in C, and an example that writes a text with them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..executable import Executable
from ..language import Tokenizer, language_model
from .text import array

SUPPORT = ("tw_text.h", "tw_text.c")
MAIN = "main_generate.c"
_FOLDER = Path(__file__).parent / "support"


def files(executable: Executable, name: str, tokenizer: str | Path) -> dict[str, str]:
    """`NAME_words.c` with the pieces of a tokenizer file, and the example `main_generate.c`, by name.

    Raises `UnsupportedError` where the executable is no language model, `FileError` for a file of another vocabulary.
    """
    model = language_model(executable)
    words = Tokenizer(tokenizer, model.words)
    names = {"network": name, "NETWORK": name.upper(), "CONTEXT": str(model.context)}
    text = re.sub("|".join(names), lambda found: names[found[0]], (_FOLDER / MAIN).read_text("utf-8"))
    return {f"{name}_words.c": _vocabulary(name, words), MAIN: text}


def _vocabulary(name: str, words: Tokenizer) -> str:
    pieces = words.pieces
    _, ranks = np.unique(np.array(words.scores, np.float64), return_inverse=True)
    first = {piece: k for k, piece in reversed([*enumerate(pieces)])}
    tables = {
        "bytes": np.frombuffer(b"".join(pieces) or b"\0", np.uint8),
        "at": np.cumsum([0, *map(len, pieces)]).astype(np.uint32),
        "rank": ranks.reshape(-1).astype(np.int32),
        "sorted": np.array([first[piece] for piece in sorted(first)], np.int32),
    }
    parts = ['#include "tw_text.h"', f"extern const tw_vocabulary {name}_words;"]
    parts += [array(key, data) for key, data in tables.items()]
    parts += [f"const tw_vocabulary {name}_words = {{{len(pieces)}, {len(first)}, bytes, at, rank, sorted}};"]
    return "\n\n".join(parts) + "\n"
