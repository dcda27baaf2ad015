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


def files(executable: Executable, name: str, tokenizer: str | Path) -> dict[str, str]:
    """`NAME_words.c` with the pieces of a tokenizer file, and the example `main_generate.c`, by name.

    Raises `UnsupportedError` where the executable is no language model, `FileError` for a file of another vocabulary.
    """
    context, size, _ = language_model(executable)
    words = Tokenizer(tokenizer, size)
    names = {"network": name, "NETWORK": name.upper(), "CONTEXT": str(context)}
    text = re.sub("|".join(names), lambda found: names[found[0]], _MAIN)
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


_MAIN = """\
/* Writes a text, always with the most likely token: main_generate [PROMPT [TOKENS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"
#include "tw_text.h"

extern const tw_vocabulary network_words;

static int32_t tokens[CONTEXT];
static float logits[NETWORK_OUTPUT_LOGITS];

/* Print the whole characters of `n` bytes, `ended` or not; how many bytes are left, which move to the front. */
static uint32_t show(uint8_t *text, uint32_t n, int ended)
{
    while (n > 0) {
        int32_t size = tw_printable(text, n);
        if (size < 0 && !ended)
            break;
        if (size > 0)
            fwrite(text, 1, (size_t)size, stdout);
        else
            printf("\\\\x%02x", text[0]);
        n -= size > 0 ? (uint32_t)size : 1;
        memmove(text, text + (size > 0 ? size : 1), n);
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *prompt = argc > 1 ? argv[1] : "";
    int32_t count = argc > 2 ? atoi(argv[2]) : 64;
    uint8_t text[4]; /* of a character that is not whole */
    uint32_t held = 0;
    int32_t given = tw_encode(&network_words, prompt, tokens, CONTEXT);
    int status = network_open(network_program);
    if (given < 1 || count <= given || count > CONTEXT) {
        fputs("a prompt has fewer tokens than the text, a text at most CONTEXT\\n", stderr);
        return 1;
    }
    for (int32_t position = 0; position + 1 < count && status == 0; position++) {
        const uint8_t *bytes;
        uint8_t byte;
        int32_t n;
        status = network_run(&tokens[position], &position, logits);
        if (position + 1 >= given)
            tokens[position + 1] = tw_most_likely(logits, NETWORK_OUTPUT_LOGITS);
        if (status != 0 || tokens[position + 1] == TW_BEGIN)
            break;
        n = tw_piece(&network_words, tokens[position], tokens[position + 1], &byte, &bytes);
        for (int32_t k = 0; k < n; k++) {
            text[held] = bytes[k];
            held = show(text, held + 1, 0);
        }
        fflush(stdout);
    }
    show(text, held, 1);
    putchar('\\n');
    if (status != 0)
        fprintf(stderr, "status %d, see tw_platform.h\\n", status);
    return status != 0;
}
"""
