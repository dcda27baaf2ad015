"""Ready schedules tuned by measurement: a convolution and a depthwise one.

Run it: python examples/tune_conv2d.py [folder for the databases]

The cost model chooses a tile in milliseconds, and `Search` times its best few in a second. Here tile sizes, loop order
and virtual threads are a search space of meta_schedule: for 24 trials they evolve from the cost model's choice, and the
timing model counts the cycles of each. What was found is read from its database again, run, and compared with numpy.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.search import Search
from tilewright.compiler.space import tile_of
from tilewright.compiler.tune import Space, cycles_of, replay, space, tune
from tilewright.compiler.tvm_compat import Schedule
from tilewright.hw.config import PRESETS
from tilewright.runtime import layout
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]
PAD, STORED = (1, 1, 1, 1), [("requant", "q")]
SHIFT = {"conv2d": 11, "depthwise": 8}  # of the accumulators, rounded; then they are clipped to 0 to 127


def spaces(size: int, channels: int) -> dict[str, Space]:
    """The search spaces of two 3x3 layers with as many input as output `channels`."""
    return {
        "conv2d": space(conv2d, CFG, 1, size, size, channels, channels, 3, 3, pad=PAD, epilogue=STORED),
        "depthwise": space(depthwise, CFG, 1, size, size, channels, 3, 3, pad=PAD, epilogue=STORED),
    }


def cycles(sch: Schedule) -> int:
    """Cycles of a schedule's program in the timing model."""
    return cycles_of(build(sch, CFG).finish(), "timing")


def check(name: str, sch: Schedule, size: int, channels: int) -> None:
    """Run a schedule's program and compare with numpy."""
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (channels, size, size), np.int8)
    kernels = (channels, channels, 3, 3) if name == "conv2d" else (channels, 3, 3)
    w = rng.integers(-128, 128, kernels, np.int8)
    pack = layout.pack_weights if name == "conv2d" else layout.pack_depthwise_weights
    scale = {"bias": np.zeros(channels, int), "multiplier": 1 << 30, "exponent": 1 - SHIFT[name], "zero_point": 0}
    q = layout.pack_par(CFG, **scale, low=0, high=127, contract="single")
    outputs, _ = run(build(sch, CFG), {"x": layout.pack_activations(x[None], CFG), "w": pack(w, CFG), "q": q})
    padded, acc = np.pad(x, ((0, 0), (1, 1), (1, 1))).astype(float), np.zeros(x.shape)  # doubles are exact here
    for ky, kx in np.ndindex(3, 3):
        window, kernel = padded[:, ky : ky + size, kx : kx + size], w[..., ky, kx].astype(float)
        acc += np.tensordot(kernel, window, 1) if name == "conv2d" else kernel[:, None, None] * window
    expected = np.clip(np.floor(acc / 2 ** SHIFT[name] + 0.5), 0, 127)
    assert np.array_equal(layout.unpack_activations(outputs["out"], channels, CFG)[0], expected)


def main(folder: Path, size: int = 56, channels: int = 64, trials: int = 24) -> None:
    """Tune both layers, replay the fastest schedules from the databases, check."""
    for name, found in spaces(size, channels).items():
        print(f"{name} 3x3, {channels} channels of {size}x{size}: {len(found):,} tiles fit {CFG.name}")
        print(f"  the cost model's choice  {cycles(found.layer.scheduled()):,} cycles")
        print(f"  the best few, timed      {cycles(found.layer.scheduled(search=Search())):,}")
        tuned = tune(found.func, found, CFG, trials=trials, seed=1, work_dir=folder / name)
        again = replay(found.func, CFG, folder / name)
        print(f"  tuned, {len(tuned.trials)} trials        {tuned.cycles:,}: {tile_of(tuned.schedule.trace)}")
        assert cycles(again.schedule) == again.cycles == tuned.cycles
        check(name, again.schedule, size, channels)
        print("  replayed from its database; results equal numpy's")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
