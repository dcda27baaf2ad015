"""The first checks of a new board, one relying on the other, and a program that every accelerator can execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.config import TERNARY_BITS, Config
from ..hw.errors import BoardError, TilewrightError
from ..hw.isa import Mem
from ..runtime.launch import Launch
from ..runtime.program import Program


def self_test(cfg: Config, seed: int = 0) -> tuple[Launch, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(program, inputs, expected outputs): one product of a vector and a weight tile, with loads and a store.

    With unit `ternary` a second one, of the same vector: the sums of each block of its channels are one entry further.
    """
    rng = np.random.default_rng(seed)
    blocks = cfg.ternary_blocks if "ternary" in cfg.units else 0
    program = Program(cfg, "selftest")
    x = program.buffer("x", (1, cfg.batch, cfg.block_in), cfg.inp_bits)
    w = program.buffer("w", (1, cfg.block_out, cfg.block_in), cfg.wgt_bits)
    y = program.buffer("y", (1 + blocks, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.load(Mem.WGT, 0, w, 0)
    program.gemm([], reset=True)
    program.gemm([])
    program.store(0, y, 0)
    if blocks:
        t = program.buffer("t", (1, blocks * cfg.block_out, cfg.block_in), TERNARY_BITS)
        program.load(Mem.TWGT, 0, t, 0)
        program.ternary([], cfg.bank_depth, reset=True)
        program.ternary([], cfg.bank_depth)
        for k in range(blocks):
            program.store(cfg.bank_depth + k * cfg.plane_depth, y, 1 + k)
    inputs = {
        "x": rng.integers(-(1 << cfg.inp_bits - 1), 1 << cfg.inp_bits - 1, x.shape).astype(np.int8),
        "w": rng.integers(-(1 << cfg.wgt_bits - 1), 1 << cfg.wgt_bits - 1, w.shape).astype(np.int8),
    }
    if blocks:
        inputs["t"] = rng.integers(-1, 2, (1, blocks * cfg.block_out, cfg.block_in)).astype(np.int8)
    weights = np.concatenate([inputs[name][0] for name in ("w", "t") if name in inputs]).astype(np.int64)
    sums = (inputs["x"][0].astype(np.int64) @ weights.T).reshape(cfg.batch, 1 + blocks, cfg.block_out).swapaxes(0, 1)
    half = 1 << cfg.out_bits - 1  # STORE keeps the low bits
    return program.finish(), inputs, {"y": ((sums + half) % (2 * half) - half).astype(np.int8)}


@dataclass(frozen=True)
class Check:
    """One check: `found` is its result as text, `fine` whether it passed. The first that fails is the last one made."""

    name: str
    fine: bool
    found: str


def stepwise(steps: Iterable[tuple[str, Callable[[], str]]]) -> Iterator[Check]:
    """The check of each of `steps`, up to the first that raises a `TilewrightError`."""
    for name, look in steps:
        try:
            found = look()
        except TilewrightError as exc:
            yield Check(name, False, str(exc))
            return
        yield Check(name, True, found)


def run_self_test(cfg: Config, load: Callable[[Any], Any]) -> str:
    """Run the self-test on the device of `load`; its result as text. Raises `BoardError` where values are wrong."""
    launch, inputs, expected = self_test(cfg)
    with load(launch) as loaded:
        (found,) = loaded.run(inputs).values()
        cycles = loaded.stats.cycles
    wrong = int((found != expected["y"]).sum())
    if wrong:
        raise BoardError(
            f"{wrong} of {found.size} values are wrong: the bitstream needs other memory ports or another clock; "
            "try half the clock, then check the ports' width in docs/board.md"
        )
    return f"{found.size} values are right" + (f", {cycles:,} cycles" if cycles is not None else "")
