"""Programs that a new simulation runs once: the compiler optimises by the branches that they take (verilator.py)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...hw.config import Config
from ...hw.isa import AluOp, Mem
from ..random_programs import Recorder, image_of, random_case

_RANDOM = 8  # random programs, of all instructions
_PRODUCTS = 1 << 14  # issues of GEMM, in several instructions: most cycles of most networks are such
_PARTS = 8


def cases(cfg: Config) -> Iterator[tuple[np.ndarray, int, int]]:
    """(memory, address of the instructions, their number) of each program, the same whenever `cfg` is."""
    for seed in range(_RANDOM):
        yield random_case(cfg, seed)
    yield products(cfg)


def products(cfg: Config) -> tuple[np.ndarray, int, int]:
    """Long GEMM instructions between loads, ALU instructions and stores of a few accumulators, as a convolution has."""
    recorder = Recorder(cfg, seed=0)
    outputs, inputs, weights = (min(8, n // 2) for n in (cfg.acc_depth, cfg.inp_depth, cfg.wgt_depth))
    for part in range(_PARTS):
        recorder.load(Mem.INP, 0, part, x=inputs)
        recorder.load(Mem.WGT, 0, part, x=weights)
        uops = np.array([(k % outputs, k % inputs, k % weights) for k in range(8)])
        again = _PRODUCTS // _PARTS // len(uops)
        recorder.gemm([(again, 0, 0, 0)], uops, reset=part == 0)
        recorder.alu(AluOp.SHR, [(outputs, 1, 1)], np.zeros((1, 2), int), imm=8)
        recorder.store(0, 0, x=outputs)
    return image_of(recorder.program.finish(), recorder.inputs)
