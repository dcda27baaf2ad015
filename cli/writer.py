"""Texts of a language model on an opened device, and what their runs take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..compiler.frontend.llama.measure import Steps
from ..compiler.graph import Graph
from ..runtime import layout
from ..runtime.executable import Executable
from ..runtime.language import TextCodec, language_model
from ..runtime.sampling import Choose
from ..runtime.writing import Answer, Step, Text
from . import report


class Writer:
    """Writes texts with a program that is `loaded`; with a `graph` each run is compared with the golden interpreter.

    `positions` are the first positions of runs of one token, `blocks` of runs of a block of tokens; `cycles` and
    `block_cycles` are theirs, where the device counts them. `wrong` are positions whose logits or caches differ.
    `seconds` is the wall-clock time of all runs, `host_seconds` the part of the steps on the host.
    """

    def __init__(self, loaded: Any, executable: Executable, codec: TextCodec, graph: Graph | None = None):
        self.codec, self.model = codec, language_model(executable)
        self._loaded, self._graph, self._text = loaded, graph, Text(loaded, self.model)
        self._golden: Any = None
        self._checked = 0  # tokens that the golden interpreter took
        self.positions, self.blocks = list[int](), list[int]()
        self.cycles, self.block_cycles = list[int](), list[int]()
        self.wrong: list[int] = []
        self.seconds, self.host_seconds = 0.0, 0.0

    @property
    def tokens(self) -> list[int]:
        """The tokens of the last text, prompt and answer."""
        return self._text.tokens

    def answer(
        self, prompt: Sequence[int], choose: Choose, count: int | None = None, stops: Sequence[str] = ()
    ) -> tuple[int, Answer]:
        """Begin a text with `prompt`. Returns how many of its tokens the device has from the text before, and the
        answer, which iterating writes: up to `count` tokens with the prompt, None for what the context holds.

        Raises `InputError` for an empty prompt or stop text, and where the context has no room for an answer.
        """
        kept = self._text.begin(prompt)
        steps = self._text.write(self.model.context if count is None else count, choose, self.codec.ends)
        return kept, Answer(self._after_prompt(steps, len(prompt), kept), prompt[-1], self.codec, stops)

    def room(self, prompt: Sequence[int], most: int | None) -> int:
        """Tokens of `prompt` and an answer of at most `most` tokens, as far as the context holds them."""
        return min(len(prompt) + (most or self.model.context), self.model.context)

    def _after_prompt(self, steps: Iterator[Step], count: int, kept: int) -> Iterator[Step]:
        """The steps that choose a token; those before are behind a progress display."""
        runs = self._counted(steps)
        with report.progress("reading the prompt", total=count - kept) as advance:
            for step in runs:
                advance(len(step.tokens))
                if step.position + len(step.tokens) >= count:
                    break
            else:
                return
        yield step
        yield from runs

    def _counted(self, steps: Iterator[Step]) -> Iterator[Step]:
        while True:
            start = time.perf_counter()
            step = next(steps, None)
            if step is None:
                return
            self.seconds += time.perf_counter() - start
            self.host_seconds += sum(run.seconds for run in self._loaded.reports if run.where == "host")
            alone, cycles = len(step.tokens) == 1, self._loaded.stats.cycles
            (self.positions if alone else self.blocks).append(step.position)
            if cycles is not None:
                (self.cycles if alone else self.block_cycles).append(cycles)
            if self._graph is not None and self._differs(step):
                self.wrong.append(step.position + len(step.tokens) - 1)
            yield step

    def _differs(self, step: Step) -> bool:
        """Whether the logits of a run, or the caches after a block of tokens, differ from the interpreter's.

        A program on a server keeps its caches there.
        """
        if step.position != self._checked or self._golden is None:  # another text, which may begin as the one before
            self._golden = self._interpreter()
            for token in self.tokens[: step.position]:
                self._golden.logits(token)
        logits = [self._golden.logits(token) for token in step.tokens]
        self._checked = step.position + len(step.tokens)
        if logits[-1].tobytes() != step.logits.tobytes():
            return True
        if len(step.tokens) == 1 or not hasattr(self._loaded, "state"):
            return False
        cfg, state = self._loaded.executable.cfg, self._golden.state
        kept = {name: layout.pack_blocks(values, cfg.batch, cfg.block_in) for name, values in state.items()}
        return any(found.tobytes() != kept[name].tobytes() for name, found in self._loaded.state.items())

    def _interpreter(self) -> Any:
        assert self._graph is not None
        return Steps(self._graph)

    def result(self, clock: float) -> dict[str, object]:
        """The facts for JSON; `clock` is the accelerator's, in Hz."""
        found: dict[str, object] = {"seconds": self.seconds, "host_seconds": self.host_seconds}
        found["clock_mhz"] = clock / 1e6
        blocks = len(self.blocks) * self.model.block
        if self.blocks:
            found["prefill_tokens"] = blocks
        for key, cycles in (("prefill_cycles", self.block_cycles), ("cycles_per_token", self.cycles)):
            if cycles:
                found[key] = cycles
        if self.cycles:
            found["tokens_per_second"] = clock * len(self.cycles) / sum(self.cycles)
        if self.host_seconds:
            found["host_tokens_per_second"] = (blocks + len(self.positions)) / self.host_seconds
        return found | ({} if self._graph is None else {"wrong_positions": self.wrong})
