"""Writes one text: pieces to the terminal as they come, cycles, and the comparison with the golden interpreter."""

from __future__ import annotations

import codecs
import time
from typing import TYPE_CHECKING, Any

from .. import report

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...runtime.executable import Executable
    from ...runtime.language import Choose, Step, Tokenizer


class Writer:
    """`echo` prints the text; with a `graph` each step's logits are compared with its own."""

    def __init__(self, tokenizer: Tokenizer, graph: Graph | None, echo: bool):
        self._tokenizer, self._graph, self._echo = tokenizer, graph, echo
        self.tokens: list[int] = []
        self.blocks: list[int] = []  # the first positions of blocks of tokens that were one run
        self.positions: list[int] = []  # of the other runs, of one token each
        self.cycles: dict[int, int] = {}  # of each run, by its first position
        self.wrong: list[int] = []  # positions
        self.text, self.seconds = "", 0.0

    def write(self, loaded: Any, executable: Executable, prompt: str, count: int, choose: Choose) -> None:
        """Write a text of `count` tokens that begins with `prompt`."""
        from ...runtime.language import language_model, write

        given, start = self._tokenizer.encode(prompt), time.perf_counter()
        golden, decoder = self._golden(), codecs.getincrementaldecoder("utf-8")("replace")
        self.tokens = given[:1]
        for step in write(loaded, language_model(executable), given, count, choose):
            (self.blocks if len(step.tokens) > 1 else self.positions).append(step.position)
            if loaded.stats.cycles is not None:
                self.cycles[step.position] = loaded.stats.cycles
            if golden is not None and _differs(golden, step, loaded):
                self.wrong.append(step.position + len(step.tokens) - 1)
            for token in (*step.tokens[1:], step.following):
                if token is not None:
                    self._add(decoder.decode(self._tokenizer.piece(self.tokens[-1], token)))
                    self.tokens.append(token)
        self._add(decoder.decode(b"", final=True) + "\n")
        self.text, self.seconds = self.text.removesuffix("\n"), time.perf_counter() - start

    def result(self, clock: float) -> dict[str, object]:
        """The facts for JSON; `clock` is the accelerator's, in Hz."""
        found: dict[str, object] = {"text": self.text, "tokens": self.tokens, "seconds": self.seconds}
        found["clock_mhz"] = clock / 1e6
        if self.blocks:
            found["prefill_tokens"] = self.positions[0] if self.positions else len(self.tokens) - 1
        for key, places in (("prefill_cycles", self.blocks), ("cycles_per_token", self.positions)):
            if places and self.cycles:
                found[key] = [self.cycles[place] for place in places]
        if self.positions and self.cycles:
            cycles = [self.cycles[place] for place in self.positions]
            found["tokens_per_second"] = clock * len(cycles) / sum(cycles)
        return found | ({} if self._graph is None else {"wrong_positions": self.wrong})

    def _golden(self) -> Any:
        if self._graph is None:
            return None
        from ...compiler.frontend.llama.measure import Steps

        return Steps(self._graph)

    def _add(self, piece: str) -> None:
        self.text += piece
        if self._echo:
            report.say(piece, nl=False)


def _differs(golden: Any, step: Step, loaded: Any) -> bool:
    """Whether the logits of a run differ from the interpreter's, or what a block of tokens left in the caches.

    A program on a server keeps its caches there.
    """
    from ...runtime import layout

    logits = [golden.logits(token) for token in step.tokens]
    if logits[-1].tobytes() != step.logits.tobytes():
        return True
    if len(step.tokens) == 1 or not hasattr(loaded, "state"):
        return False
    cfg = loaded.executable.cfg
    kept = {name: layout.pack_blocks(values, cfg.batch, cfg.block_in) for name, values in golden.state.items()}
    return any(found.tobytes() != kept[name].tobytes() for name, found in loaded.state.items())
