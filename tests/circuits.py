"""Random programs on the simulated circuit, many of them: `.venv/bin/python tests/circuits.py --config tiny_two`.

Each runs on the behavioural model (some also as sim/spec.py defines them) and on the circuit, and all of memory
is compared, and the instructions, micro-ops and products that were counted. With unit `ternary`, every other program
is one that presses all units into few accumulators of the same banks. Ten programs meet what the ones before left in
the scratchpads; then the circuit starts anew, with other delays of memory. Seeds of programs that differ are printed;
the exit status is 1 where there are any.
"""

import argparse
import sys
import time
from dataclasses import dataclass, field
from multiprocessing import Pool

import numpy as np

from tilewright.hw.config import Config, load_config
from tilewright.hw.isa import AluOp, Mem
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ENTRIES, Recorder, image_of, random_case
from tilewright.sim.rtl.device import RtlDevice
from tilewright.sim.spec import SpecDevice

TOGETHER = 10  # programs on one circuit
NEAR = 16  # accumulators of a bank that a crowd presses into, at most


class Crowd:
    """Random work of all units in few accumulators of the same banks, nearly all of it without tokens between them.

    In every plane of a bank the first entries belong to unit `ternary`, those behind to the compute queue.
    """

    def __init__(self, cfg, seed):
        self.cfg, self.to = cfg, Recorder(cfg, seed)
        self.r = r = self.to.rng
        cut, banks = int(r.integers(1, 5)), r.permutation(4)
        starts = [bank * cfg.bank_depth for bank in banks[: r.integers(1, 5)]]
        self.ternary = [start + k for start in starts[: r.integers(1, 5)] for k in range(cut)]
        first = cut if r.random() < 0.8 else 0  # or both in the same entries
        self.runs = [start + t * cfg.plane_depth + first for start in starts for t in range(cfg.ternary_blocks)]
        self.length = min(cfg.plane_depth, NEAR) - first
        self.weights = min(8, cfg.twgt_depth)

    def below(self, n):
        return int(self.r.integers(n))

    def accumulators(self, n):
        return self.r.choice(self.runs, n) + self.r.integers(0, self.length, n)

    def mode(self):
        chosen = self.r.random()
        return {"reset": chosen < 0.15, "overwrite": 0.15 <= chosen < 0.3}

    def uops(self, dst, wgt):
        n = 1 + self.below(5)
        same = np.resize(dst(1 if self.below(2) else n), n)
        return np.stack([same, self.r.integers(0, 16, n), self.r.integers(0, wgt, n)], 1)

    def loops(self):
        return [(1 + self.below(8), 0, self.below(3), 0) for _ in range(self.below(3))]

    def gemm(self):
        self.to.gemm(self.loops(), self.uops(self.accumulators, 16), **self.mode())

    def product(self):
        self.to.ternary(self.loops(), self.uops(lambda n: self.r.choice(self.ternary, n), self.weights), **self.mode())

    def alu(self):
        op = [AluOp.ADD, AluOp.MAX, AluOp.SHR, AluOp.MUL, AluOp.RESCALE][self.below(5)]
        n = 1 + self.below(5)
        imm = self.below(8) if op in (AluOp.SHR, AluOp.RESCALE) or self.below(2) else None
        self.to.alu(op, [], np.stack([self.accumulators(n), self.accumulators(n)], 1), imm)

    def load(self):
        """Padding comes before the data, so that a load is written as soon as it may."""
        at = self.below(self.length - 1)
        pads, x = self.below(self.length - at), 1
        x = 1 + self.below(self.length - at - pads)
        self.to.load(Mem.ACC, self.r.choice(self.runs) + at, self.below(8), x=x, pads=(0, 0, pads, 0))

    def operand(self):
        mem = (Mem.INP, Mem.WGT, Mem.TWGT)[self.below(3)]
        self.to.load(mem, self.below(6), self.below(8), x=1 + self.below(2))

    def store(self):
        first = self.r.choice(self.runs) if self.cfg.plane_depth > NEAR else self.below(self.cfg.acc_depth - 3)
        self.to.store(first, self.below(64), x=1 + self.below(3), par=self.below(8))

    def record(self):
        """The launch and its inputs."""
        to, cfg = self.to, self.cfg
        for mem, depth in ((Mem.INP, cfg.inp_depth), (Mem.WGT, cfg.wgt_depth), (Mem.TWGT, cfg.twgt_depth)):
            to.load(mem, 0, 0, x=min(ENTRIES, depth))
        to.load(Mem.PAR, 0, 0, x=min(ENTRIES, cfg.par_entries))
        size = min(cfg.bank_depth, 32)
        parts = [bank * cfg.bank_depth for bank in range(4)]
        for start in parts:
            to.load(Mem.ACC, start, 0, x=size)
        kinds = [self.gemm, self.product, self.alu, self.load, self.store, self.operand]
        for kind in self.r.choice(6, 5 + self.below(60), p=self.r.dirichlet([3, 3, 1, 1, 1, 0.5])):
            kinds[kind]()
        for k, start in enumerate(parts):
            to.store(start, 100 + k * size, x=size)
            to.store(start, 300 + k * size, x=size, par=1)
        return to.program.finish(), to.inputs


def case(cfg: Config, seed: int) -> tuple[np.ndarray, int, int]:
    """(memory, address of the instructions, their number) of program `seed`."""
    if seed % 2 and "ternary" in cfg.units:
        return image_of(*Crowd(cfg, seed).record())
    return random_case(cfg, seed)


@dataclass
class Found:
    """What came of some programs."""

    programs: int = 0
    defined: int = 0  # also compared with the definition
    instructions: int = 0
    ternary: int = 0  # of them on unit ternary
    cycles: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def compared(cfg: Config, first: int, count: int, every: int) -> Found:
    """Programs `first` to `first + count` on one circuit and one model; in every so many parts by definition, too."""
    found, model, circuit = Found(), ModelDevice(cfg), RtlDevice(cfg, dram=Dram.random(first))
    spec = SpecDevice(cfg) if every and first // TOGETHER % every == 0 else None
    for seed in range(first, first + count):
        image, address, insns = case(cfg, seed)
        expected, got = image.copy(), image.copy()
        wanted = model.run_image(expected, address, insns)
        counted = circuit.run_image(got, address, insns)
        differ = int(np.count_nonzero(expected != got))
        if differ or (counted.insns, counted.uops, counted.macs) != (wanted.insns, wanted.uops, wanted.macs):
            found.wrong.append(f"{cfg.name}, seed {seed}: {differ} bytes of the circuit differ, behind {first}")
        if spec is not None:
            spec.run_image(image, address, insns)
            found.defined += 1
            if not np.array_equal(image, expected):
                found.wrong.append(f"{cfg.name}, seed {seed}: the model differs from the definition")
        found.programs += 1
        found.instructions += insns
        found.ternary += counted.insns.get("TERNARY", 0)
        found.cycles += counted.cycles or 0
    return found


def _part(arguments: tuple) -> Found:
    return compared(*arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run them, print what came of them; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="tiny_two")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--spec-every", type=int, default=10, help="of so many tens of programs one by definition")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args(arguments)
    cfg, end, start = load_config(args.config), args.seed + args.count, time.monotonic()
    RtlDevice(cfg)  # built once
    parts = [(cfg, first, min(TOGETHER, end - first), args.spec_every) for first in range(args.seed, end, TOGETHER)]
    found = Found()
    with Pool(args.jobs) as pool:
        for one in pool.imap(_part, parts):
            found.add(one)
            for line in one.wrong:
                print(line, flush=True)
    print(
        f"{cfg.name}, seeds {args.seed} to {end - 1}: {found.programs} programs, {len(found.wrong)} differ; "
        f"{found.defined} also by definition; {found.instructions:,} instructions, {found.ternary:,} of unit ternary, "
        f"{found.cycles:,} cycles, {time.monotonic() - start:.0f} s"
    )
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
