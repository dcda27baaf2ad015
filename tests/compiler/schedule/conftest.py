"""What the tests of the ready schedules share: configurations, and int64 references that share no code with them."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.compiler import build
from tilewright.hw.config import PRESETS, Config
from tilewright.runtime import layout
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify
from tilewright.sim.model.device import ModelDevice

_SMALL = Config(
    inp_bytes=1 << 12,
    wgt_bytes=1 << 12,
    acc_bytes=1 << 14,
    uop_bytes=1 << 12,
    wgt_bits=4,
    extensions=frozenset({"pad_value", "acc8"}),
)
CONFIGS = {
    "vta": PRESETS["vta"],
    "tiny": PRESETS["tiny"],
    "uneven": _SMALL.replace(name="uneven", batch=2, block_in=8, block_out=4),
    "int4": _SMALL.replace(
        name="int4", batch=2, block_in=4, block_out=16, inp_bits=4, out_bits=4, extensions={"pad_value"}
    ),
}
APPLY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "shr": np.right_shift,
    "shl": np.left_shift,
}


def wrap(values, bits: int):
    """`values` as two's complement of `bits` bits."""
    half = 1 << bits - 1
    return (np.asarray(values, np.int64) + half) % (2 * half) - half


def windows(x, kernel, stride, pad, dilation, pad_value):
    """[(ky, kx, what every output position sees there)] of x (n, c, h, w), int64."""
    top, left, bottom, right = pad
    kh, kw = kernel
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=pad_value)
    oy = (x.shape[2] - (kh - 1) * dilation[0] - 1) // stride[0] + 1
    ox = (x.shape[3] - (kw - 1) * dilation[1] - 1) // stride[1] + 1
    for ky in range(kh):
        for kx in range(kw):
            rows, columns = ky * dilation[0], kx * dilation[1]
            yield ky, kx, x[:, :, rows :: stride[0], columns :: stride[1]][:, :, :oy, :ox]


def convolve(x, w, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), pad_value=0):
    """The convolution of x (n, ci, h, w) with w (co, ci, kh, kw), int64."""
    parts = windows(x, w.shape[2:], stride, pad, dilation, pad_value)
    return sum(np.einsum("nchw,oc->nohw", part, w[:, :, ky, kx].astype(np.int64)) for ky, kx, part in parts)


def epilogue(acc, chain, named):
    """`chain` applied to accumulators, with 32-bit wrap-around."""
    for op, other in chain:
        value = named[other] if isinstance(other, str) else other
        acc = wrap(APPLY[op](acc, value), 32)
    return acc


def values(rng, bits: int, shape):
    """Random numbers of `bits` bits."""
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(np.int8)


def outputs_of(sch, cfg, inputs, planes=False):
    """What the program of `sch`, proved free of races, gives: the packed int8 output, or int32 from its planes.

    The model interleaves the queues at random.
    """
    program = build(sch, cfg)
    verify(program.finish())
    out, stats = run(program, inputs, ModelDevice(cfg, rng=np.random.default_rng(0)))
    return (layout.planes_to_int32([out[f"OUT{k}"] for k in range(4)]) if planes else out["out"]), stats


def search_for(tile):
    """A search that finds `tile`, whatever it is asked."""
    return SimpleNamespace(tile=lambda layer, vthreads: tile)


@pytest.fixture(scope="session")
def ref():
    """The functions above."""
    return SimpleNamespace(
        configs=CONFIGS,
        wrap=wrap,
        windows=windows,
        convolve=convolve,
        epilogue=epilogue,
        values=values,
        outputs_of=outputs_of,
        search_for=search_for,
    )
