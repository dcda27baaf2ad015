"""One over a square root on the ALU, for sums of squares of every size."""

import numpy as np
import pytest

from tilewright.compiler.graph import RmsNorm, Tensor
from tilewright.compiler.kernels import roots
from tilewright.compiler.kernels.language import Kernel
from tilewright.compiler.kernels.recording import Recording
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.hostops.roots import inverse_root
from tilewright.runtime.loader import run

PLUS = PRESETS["pynq_z1_plus"]
COUNT = 64
NORM = RmsNorm("norm", (Tensor("x", (1, 16), scale=0.05),), Tensor("y", (1, 16), scale=0.02), np.ones(16))


def kernel():
    return Kernel(Recording(PLUS, "double", "root"), NORM)


@pytest.mark.parametrize("near", [0, 1 << 6, 1 << 12, 1 << 14, 1 << 18, (1 << 20) - 16 * COUNT + 1])
def test_it_equals_the_kernel(near):
    k = kernel()
    s = np.arange(near, near + 16 * COUNT, dtype=np.int32).reshape(COUNT, 1, 16)
    x = k.array(k.program.buffer("s", s.shape, bits=32), entry=COUNT)
    y = k.array(k.program.buffer("r", (3, *s.shape), kind="output"), byte=3, entry=COUNT)
    copies = k.load(k.tile(Mem.ACC, copy=roots.COPIES, entry=COUNT), x.repeated(copy=roots.COPIES))
    found = roots.inverse_root(copies, roots.root_tables(k))
    for byte in range(3):  # of 20 bits
        k.store(y[byte], found)
        found >>= 8
    low, middle, high = run(k.program, {"s": s})[0]["r"].astype(int)
    np.testing.assert_array_equal((high << 16) + ((middle & 255) << 8) + (low & 255), inverse_root(s))


def test_tables_are_loaded_once():
    k = kernel()
    assert roots.root_tables(k) == roots.root_tables(k) == (0, 1)
    assert len(k.program.buffers) == 2
