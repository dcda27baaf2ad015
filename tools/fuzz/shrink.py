"""A program that shows a difference, made shorter while it does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.hw.config import Config
from tilewright.hw.errors import ExecutionError
from tilewright.hw.isa import FLAGS, INSN_BYTES, Op, known_isa
from tilewright.hw.units import channels
from tilewright.sim.model.device import at_random
from tilewright.sim.spec import SpecDevice
from tools.faults.compare import replace_by_nop

from .programs import Generated

_ORDERS = 4  # random ones in which a program is run to see that its result does not depend on the order
_MOST = 500  # programs that are tried


class _Shrinker:
    def __init__(self, cfg: Config, program: Generated, differs: Callable[[Generated], bool]):
        self.cfg, self.isa, self.program, self._differs = cfg, known_isa(cfg), program, differs
        self.left = _MOST

    def accept(self, words: np.ndarray) -> bool:
        """Go on with the instructions `words` where these show the difference, too."""
        if not self.left or np.array_equal(words, self.program.words):
            return False
        self.left -= 1
        new = with_words(self.program, words)
        if not self._differs(new) or (new.legal and not settled(self.cfg, new)):
            return False
        self.program = new
        return True

    def idle_runs(self) -> None:
        """Instructions do nothing but exchange their tokens: half of them, quarters, single ones."""
        size = self.program.count
        while size:
            for start in range(0, self.program.count - 1, size):
                image = self.program.image.copy()
                for k in range(start, min(start + size, self.program.count - 1)):
                    replace_by_nop(self.isa, image, self.program.address, k)
                self.accept(Generated(0, image, self.program.address, self.program.count).words)
            size //= 2

    def drop(self) -> None:
        """Without instructions that have no tokens, from the last on."""
        for k in range(self.program.count - 2, -1, -1):
            (f,) = self.isa.decode(self.program.words[k : k + 1])
            if not any(f[flag] for flag in FLAGS):
                self.accept(np.delete(self.program.words, k, axis=0))

    def drop_tokens(self) -> None:
        """Without a token and the one that waits for it, of every channel."""
        for channel in channels(self.cfg):
            at = 0
            while True:
                fields = self.isa.decode(self.program.words)
                queues = [self.isa.queue(f) for f in fields]
                pushes = [k for k, f in enumerate(fields) if queues[k] == channel.source and f[channel.push]]
                pops = [k for k, f in enumerate(fields) if queues[k] == channel.target and f[channel.pop]]
                if at >= min(len(pushes), len(pops)):
                    break
                words, head = self.program.words, self.isa.formats["FINISH"].fields
                for k, flag in ((pushes[at], channel.push), (pops[at], channel.pop)):
                    words[k, 0] &= ~np.uint64(1 << head[flag].lo)
                at += not self.accept(words)

    def lower(self) -> None:
        """Fields with 0, 1, or half of what they have."""
        for k in range(self.program.count - 1):
            f = self.isa.decode(self.program.words[k : k + 1])[0]
            form = self.isa.format_of(f["op"], f.get("mem", 0))
            assert form is not None
            for name in form.fields:
                if name in ("op", "mem", "alu_op", *FLAGS):
                    continue
                for value in dict.fromkeys((0, 1, f[name] // 2)):
                    if abs(value) < abs(f[name]):
                        words = self.program.words
                        words[k] = form.encode(1, **{**f, name: value})[0]
                        if self.accept(words):
                            f[name] = value
                            break


def with_words(program: Generated, words: np.ndarray) -> Generated:
    """`program` with the instructions `words`, uint64 (n, 2), not more than it has."""
    image, end = program.image.copy(), program.address + INSN_BYTES * len(words)
    image[program.address : end] = np.ascontiguousarray(words).view(np.uint8).reshape(-1)
    return Generated(program.seed, image, program.address, len(words), program.legal)


def settled(cfg: Config, program: Generated) -> bool:
    """Whether `program` ends well, and with the same memory in random orders: what is left of one may race."""
    results, rng = [], np.random.default_rng(0)
    for choose in (min, *(at_random(rng) for _ in range(_ORDERS))):
        image = program.image.copy()
        try:
            SpecDevice(cfg, choose=choose).run_image(image, program.address, program.count)
        except ExecutionError:
            return False
        results.append(image)
    return all(np.array_equal(results[0], other) for other in results[1:])


def shrink(cfg: Config, program: Generated, differs: Callable[[Generated], bool]) -> Generated:
    """The shortest program found for which `differs` holds, as it does for `program`."""
    found = _Shrinker(cfg, program, differs)
    count = None
    while count != found.program.count:
        count = found.program.count
        found.idle_runs()
        found.drop()
        found.drop_tokens()
        found.drop()
    found.lower()
    return found.program


def listing(cfg: Config, program: Generated) -> list[str]:
    """The disassembly, a line per instruction."""
    isa = known_isa(cfg)
    return [f"{k:4} {isa.disassemble(f)}" for k, f in enumerate(isa.decode(program.words)) if f["op"] in list(Op)]
