"""Writes one text: pieces to the terminal as they come, cycles, and the comparison with the golden interpreter."""

from __future__ import annotations

import codecs
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...runtime.executable import Executable
    from ...runtime.language.tokenizer import Tokenizer
    from ...runtime.language.writing import Choose


class Writer:
    """`echo` prints the text; with a `graph` each step's logits are compared with its own."""

    def __init__(self, tokenizer: Tokenizer, graph: Graph | None, echo: bool):
        self._tokenizer, self._graph, self._echo = tokenizer, graph, echo
        self.tokens: list[int] = []
        self.cycles: list[int] = []
        self.wrong: list[int] = []  # positions
        self.text, self.seconds, self.runs = "", 0.0, 0

    def write(self, loaded: Any, executable: Executable, prompt: str, count: int, choose: Choose) -> None:
        """Write a text of `count` tokens that begins with `prompt`."""
        from ...runtime.language.writing import language_model, write

        given, start = self._tokenizer.encode(prompt), time.perf_counter()
        golden, decoder = self._golden(), codecs.getincrementaldecoder("utf-8")("replace")
        self.tokens = given[:1]
        for step in write(loaded, language_model(executable)[0], given, count, choose):
            self.runs += 1
            if loaded.stats.cycles is not None:
                self.cycles.append(loaded.stats.cycles)
            if golden is not None and golden.logits(step.token).tobytes() != step.logits.tobytes():
                self.wrong.append(len(self.tokens) - 1)
            if step.following is not None:
                self.tokens.append(step.following)
                self._add(decoder.decode(self._tokenizer.piece(step.token, step.following)))
        self._add(decoder.decode(b"", final=True) + "\n")
        self.text, self.seconds = self.text.removesuffix("\n"), time.perf_counter() - start

    def result(self, clock: float) -> dict[str, object]:
        """The facts for JSON; `clock` is the accelerator's, in Hz."""
        found: dict[str, object] = {"text": self.text, "tokens": self.tokens, "seconds": self.seconds}
        found["clock_mhz"] = clock / 1e6
        if self.cycles:
            rate = clock * len(self.cycles) / sum(self.cycles)
            found |= {"cycles_per_token": self.cycles, "tokens_per_second": rate}
        return found | ({} if self._graph is None else {"wrong_positions": self.wrong})

    def _golden(self) -> Any:
        if self._graph is None:
            return None
        from ...compiler.frontend.llama.measure import Steps

        return Steps(self._graph)

    def _add(self, piece: str) -> None:
        self.text += piece
        if self._echo:
            click.echo(piece, nl=False)
