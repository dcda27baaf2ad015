"""The behavioural model, the fast form of sim/spec.py, as a device with memory of its own."""

from __future__ import annotations

import numpy as np

from ...hw.config import Config
from ...runtime.device import Stats
from ..memory import CAPACITY, DeviceMemory
from .machine import Model


class ModelDevice(DeviceMemory):
    """Memory of up to `capacity` bytes and a behavioural model of configuration `cfg`.

    `rng` makes the model interleave its queues at random.
    """

    def __init__(self, cfg: Config, *, capacity: int = CAPACITY, rng: np.random.Generator | None = None):
        super().__init__(capacity)
        self.cfg = cfg
        self._model = Model(cfg, self.bytes, rng=rng)

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """Execute the instructions at `insn_address` to FINISH; errors as of `Model.run`."""
        return self.run_image(self.bytes, insn_address, insn_count)

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute in `image`, uint8 (n,), instead of the device's memory; its index is the address."""
        if image is not self._model.dram:
            self._model.dram = image
        return self._model.run(insn_address, insn_count)
