"""The timing model as a device: values from the behavioural model, cycles and counters from sim/timing/engine.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

import numpy as np

from ...hw.config import Config
from ...hw.isa import INSN_BYTES
from ...runtime.device import Stats
from ..dram import ZYNQ_HP, Dram
from ..memory import CAPACITY
from ..model.device import ModelDevice
from .engine import Timing, simulate
from .observed import observed
from .program import columns


class TimingDevice(ModelDevice):
    """Memory and behavioural model of configuration `cfg`, with the cycles that the circuit would need.

    `dram` is the memory's timing; `skip` names what takes no time (`gemm`, `alu`, `dma`), and changes no value.
    `timing` is what the latest run took, by instruction. Raises `UnsupportedError` for an unknown name in `skip`, or a
    memory that stalls at random.
    """

    def __init__(self, cfg: Config, *, capacity: int = CAPACITY, dram: Dram = ZYNQ_HP, skip: Iterable[str] = ()):
        super().__init__(cfg, capacity=capacity)
        self.dram, self.skip = dram, tuple((skip,) if isinstance(skip, str) else skip)
        self.timing: Timing | None = None

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute in `image`, uint8 (n,), in place of the device's memory; its index is the address."""
        words = image[insn_address : insn_address + insn_count * INSN_BYTES].copy().view("<u8").reshape(-1, 2)

        def uops(first: int, count: int) -> np.ndarray:
            found = image[4 * first : 4 * (first + count)].view("<u4")
            return np.pad(found, (0, count - len(found)))

        program = columns(self.cfg, words, uops, self.skip)
        stats = super().run_image(image, insn_address, insn_count)
        self.timing = simulate(self.cfg, self.dram, program, insn_address)
        stats.cycles, stats.counters = self.timing.cycles, Counter(self.timing.counters)
        stats.timeline = self.timing.timeline
        stats.observed = partial(observed, self.cfg, self.dram, words, program, insn_address, self.skip)
        return stats
