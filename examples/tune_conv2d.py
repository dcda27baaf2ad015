"""Ready schedules tuned by measurement: three convolutions, one of them depthwise.

Run it: python examples/tune_conv2d.py [FOLDER for the databases, and for inputs and outputs of the first layer]

The cost model chooses a tile in milliseconds, and `Search` times its best few in a second. Here tile sizes, loop order
and virtual threads are a search space of meta_schedule: for 24 trials they evolve from the cost model's choice, and the
timing model counts the cycles of each. The schedule found is read back from its database, run, and compared with numpy.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.schedule.conv2d import conv2d
from tilewright.compiler.schedule.depthwise import depthwise
from tilewright.compiler.tune import Space, cycles_of, replay, space, tune
from tilewright.compiler.tune.sampling import tile_of
from tilewright.compiler.tune.search import Search
from tilewright.compiler.tvm_compat import Schedule
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime import layout
from tilewright.runtime.loader import run

CFG = PRESETS["pynq_z1"]


@dataclass(frozen=True)
class Case:
    """A convolution of a square image, `size` x `size`, with square kernels and "same" padding.

    Accumulators are shifted right by `shift`, rounded, and clipped to 0 to 127.
    """

    name: str
    ci: int
    co: int
    kernel: int
    stride: int
    shift: int
    size: int = 56

    def space(self, cfg: Config = CFG) -> Space:
        """The tiles of the layer."""
        pad, step = (self.kernel // 2,) * 4, (self.stride, self.stride)
        shape = (self.size, self.size, self.ci, self.co, self.kernel, self.kernel)
        if self.name == "depthwise":
            return space(depthwise, cfg, 1, *shape[:3], *shape[4:], stride=step, pad=pad, epilogue=[("requant", "q")])
        return space(conv2d, cfg, 1, *shape, step, pad, epilogue=[("requant", "q")])

    def data(self) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """(inputs of the program, the output that it must give) by numpy."""
        rng, k, s = np.random.default_rng(0), self.kernel, self.stride
        alone = self.name == "depthwise"
        x = rng.integers(-128, 128, (self.ci, self.size, self.size), np.int8)
        w = rng.integers(-128, 128, (self.co, k, k) if alone else (self.co, self.ci, k, k), np.int8)
        scale = {"bias": np.zeros(self.co, int), "multiplier": 1 << 30, "exponent": 1 - self.shift, "zero_point": 0}
        inputs = {"x": layout.pack_activations(x[None], CFG)}
        inputs["w"] = (layout.pack_depthwise_weights if alone else layout.pack_weights)(w, CFG)
        inputs["q"] = layout.pack_par(CFG, **scale, low=0, high=127, contract="single")
        padded = np.pad(x, ((0, 0), (k // 2, k // 2), (k // 2, k // 2))).astype(float)  # doubles are exact here
        out = -(-self.size // s)
        acc = np.zeros((self.co, out, out))
        for ky, kx in np.ndindex(k, k):
            window, kernel = padded[:, ky:, kx:][:, ::s, ::s][:, :out, :out], w[..., ky, kx].astype(float)
            acc += kernel[:, None, None] * window if alone else np.tensordot(kernel, window, 1)
        return inputs, np.clip(np.floor(acc / 2**self.shift + 0.5), 0, 127)


CASES = [
    Case("conv2d 3x3", 64, 64, 3, 1, shift=11),
    Case("conv2d 1x1", 64, 128, 1, 2, shift=9),
    Case("depthwise", 64, 64, 3, 1, shift=8),
]


def schedule(cfg: Config = CFG) -> Schedule:
    """The first layer with the cost model's tile, for `tilewright compile examples/tune_conv2d.py:schedule`."""
    return CASES[0].space(cfg).layer.scheduled()


def cycles(sch: Schedule) -> int:
    """Cycles of a schedule's program in the timing model."""
    return cycles_of(build(sch, CFG).finish(), "timing")


def check(case: Case, sch: Schedule) -> None:
    """Run a schedule's program and compare with numpy."""
    inputs, expected = case.data()
    outputs, _ = run(build(sch, CFG), inputs)
    assert np.array_equal(layout.unpack_activations(outputs["out"], case.co, CFG)[0], expected)


def main(folder: Path, cases: list[Case] = CASES, trials: int = 24) -> None:
    """Tune each layer, replay the fastest schedule from its database, check."""
    for case in cases:
        tiles, kept = case.space(), folder / case.name.replace(" ", "-")
        layer = f"{case.name}, {case.ci} to {case.co} channels of {case.size}x{case.size}, stride {case.stride}"
        print(f"{layer}: {len(tiles):,} tiles fit {CFG.name}")
        print(f"  the cost model's choice  {cycles(tiles.layer.scheduled()):,} cycles")
        print(f"  the best few, timed      {cycles(tiles.layer.scheduled(search=Search())):,}")
        tuned = tune(tiles.func, tiles, CFG, trials=trials, seed=1, work_dir=kept)
        print(f"  tuned, {len(tuned.trials)} trials        {tuned.cycles:,}: {tile_of(tuned.schedule.trace)}")
        again = replay(tiles.func, CFG, kept)
        assert cycles(again.schedule) == again.cycles == tuned.cycles
        check(case, again.schedule)
        print("  replayed from its database; results equal numpy's")
    inputs, expected = cases[0].data()
    outputs = layout.pack_activations(expected[None].astype(np.int8), CFG, block=CFG.block_out)
    np.savez(folder / "first.npz", x=inputs["x"], w=inputs["w"], q=inputs["q"], outputs=outputs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
