"""A program that every accelerator can execute, with its expected output: the first to run on a new board."""

from __future__ import annotations

import numpy as np

from ..hw.config import Config
from ..hw.isa import Mem
from ..runtime.launch import Launch
from ..runtime.program import Program


def self_test(cfg: Config, seed: int = 0) -> tuple[Launch, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(program, inputs, expected outputs): one product of a vector and a weight tile, with loads and a store."""
    rng = np.random.default_rng(seed)
    program = Program(cfg, "selftest")
    x = program.buffer("x", (1, cfg.batch, cfg.block_in), cfg.inp_bits)
    w = program.buffer("w", (1, cfg.block_out, cfg.block_in), cfg.wgt_bits)
    y = program.buffer("y", (1, cfg.batch, cfg.block_out), cfg.out_bits, kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.load(Mem.WGT, 0, w, 0)
    program.gemm([], reset=True)
    program.gemm([])
    program.store(0, y, 0)
    inputs = {
        "x": rng.integers(-(1 << cfg.inp_bits - 1), 1 << cfg.inp_bits - 1, x.shape).astype(np.int8),
        "w": rng.integers(-(1 << cfg.wgt_bits - 1), 1 << cfg.wgt_bits - 1, w.shape).astype(np.int8),
    }
    sums = inputs["x"][0].astype(np.int64) @ inputs["w"][0].T.astype(np.int64)
    half = 1 << cfg.out_bits - 1  # STORE keeps the low bits
    return program.finish(), inputs, {"y": ((sums + half) % (2 * half) - half).astype(np.int8)[None]}
