"""Random programs by their seed: legal ones of any kind, and some that end in errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.hw.config import PRESETS, Config
from tilewright.sim.random_programs import (
    NARROW,
    ODD,
    ODD_TWO,
    ROWS,
    WIDE,
    Recorder,
    every_idler,
    image_of,
    record_random,
    with_idlers,
)

from .crowd import NEEDS, Crowd
from .reach import Reach
from .vary import varied
from .wild import Writer

TOGETHER = 10  # programs on the same devices: each meets what the ones before left in the scratchpads
_WILD = 5  # of so many groups one is of programs that may end in errors
_IDLERS = 20  # instructions that do nothing, in a third of the programs

BROAD = Config(
    name="broad",
    block_in=8,
    block_out=32,
    axi_bits=512,
    uop_bytes=1 << 10,
    inp_bytes=1 << 11,
    wgt_bytes=1 << 13,
    acc_bytes=1 << 14,
    par_entries=16,
    ppu_lanes=8,
    acc_banks=2,
    extensions=frozenset({"overwrite", "pad_value", "acc8", "requant", "rescale", "lane_reduce"}),
)
CONFIGS = (PRESETS["tiny"], PRESETS["tiny_two"], ODD, NARROW, WIDE, ROWS, ODD_TWO, BROAD)


@dataclass(frozen=True)
class Generated:
    """`count` instructions at byte `address` of `image`, uint8 (n,); one that is not `legal` may end in an error."""

    seed: int
    image: np.ndarray
    address: int
    count: int
    legal: bool = True

    @property
    def words(self) -> np.ndarray:
        """The instructions, uint64 (count, 2): a copy."""
        return self.image[self.address : self.address + 16 * self.count].copy().view(np.uint64).reshape(-1, 2)


def wild(seed: int) -> bool:
    """Whether `generated` makes one that may end in an error of `seed`, and of all seeds of its ten."""
    return seed // TOGETHER % _WILD == _WILD - 1


def generated(cfg: Config, seed: int) -> Generated:
    """Program `seed`, the same for the same seed: one of `Writer`, of `Crowd` or of `Reach`.

    All but the first are legal, and have any values in fields that nothing uses.
    """
    if wild(seed):
        return Generated(seed, *Writer(cfg, seed).program(), legal=False)
    rng = np.random.default_rng([seed, 1])
    if seed % 2 and "ternary" in cfg.units and cfg.extensions >= NEEDS:
        launch, inputs = Crowd(cfg, seed).record()
    else:
        recorder = Recorder(cfg, seed)
        record_random(recorder, int(recorder.rng.integers(5, 60)), Reach)
        launch, inputs = recorder.program.finish(), recorder.inputs
    if seed % 3 == 0:
        launch = with_idlers(launch, rng, _IDLERS, cfg.extensions, every_idler())
    image, address, count = image_of(varied(launch, rng), inputs)
    return Generated(seed, image, address, count)
