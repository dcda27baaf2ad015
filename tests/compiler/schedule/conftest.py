"""Runs the ready schedules and compares them with int64 references that share no code with them."""

from dataclasses import dataclass

import numpy as np

from tilewright.compiler import build
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.conv2d import conv2d_of
from tilewright.compiler.schedule.dense import dense_of
from tilewright.compiler.schedule.depthwise import depthwise_of
from tilewright.compiler.schedule.pool import pool_of
from tilewright.compiler.tile import Tile
from tilewright.hw import rounding
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
READY = {"conv2d": conv2d_of, "dense": dense_of, "depthwise": depthwise_of, "max": pool_of, "sum": pool_of}


def wrap(values, bits: int):
    """`values` as two's complement of `bits` bits."""
    half = 1 << bits - 1
    return (np.asarray(values, np.int64) + half) % (2 * half) - half


def values(rng, bits: int, shape):
    """Random numbers of `bits` bits."""
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape).astype(np.int8)


def accumulators(kind: str, x, w, shape: ConvShape, pad_value=0):
    """int64 (n, channels, rows, columns): the layer by sums over shifted images of x (n, c, h, w)."""
    (sy, sx), (dy, dx), (top, left, bottom, right) = shape.strides, shape.dilations, shape.pads
    (kh, kw), outside = shape.kernel, -128 if kind == "max" else pad_value
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
    rows, columns = (x.shape[2] - (kh - 1) * dy - 1) // sy + 1, (x.shape[3] - (kw - 1) * dx - 1) // sx + 1
    seen = [
        (x[:, :, ky * dy :: sy, kx * dx :: sx][:, :, :rows, :columns], ky, kx) for ky in range(kh) for kx in range(kw)
    ]
    if kind in ("max", "sum"):
        return getattr(np.stack([part for part, *_ in seen]), kind)(axis=0)
    if kind == "depthwise":
        products = [part * w[None, :, ky, kx, None, None].astype(np.int64) for part, ky, kx in seen]
    else:
        products = [np.einsum("nchw,oc->nohw", part, w[:, :, ky, kx].astype(np.int64)) for part, ky, kx in seen]
    return np.sum(products, axis=0)


def apply_stages(acc, chain, named):
    """`chain` applied to accumulators, with 32-bit wrap-around; parameters of channels are columns in `named`."""
    for op, other in chain:
        value = named[other] if isinstance(other, str) else other
        if op == "rescale":
            acc = rounding.rescale(acc, *value[1:3])
        elif op == "requant":
            bias, multiplier, exponent, facts = value
            limits = facts["zero_point"], facts["low"], facts["high"], facts["contract"]
            acc = rounding.requantise(acc + bias, multiplier, exponent, *limits)
        else:
            acc = wrap(APPLY[op](acc, value), 32)
    return acc


def parameters(cfg, rng, channels: int, contract: str = "double", with_bias: bool = True):
    """(packed parameters of `requant`, the same as columns of channels for `apply_stages`)."""
    bias = rng.integers(-3000, 3000, channels) * with_bias
    multiplier, exponent = rng.integers(1 << 30, 1 << 31, channels), rng.integers(-14, -4, channels)
    facts = {"zero_point": -7, "low": -100, "high": 90, "contract": contract}
    packed = layout.pack_par(cfg, bias=bias, multiplier=multiplier, exponent=exponent, **facts)
    return packed, (*(column[:, None, None] for column in (bias, multiplier, exponent)), facts)


def outputs_of(sch, cfg, inputs, planes=False):
    """(the packed int8 output, or int32 from its planes; statistics) of the program of `sch`, proved free of races.

    The model interleaves the queues at random.
    """
    program = build(sch, cfg)
    verify(program.finish())
    out, stats = run(program, inputs, ModelDevice(cfg, rng=np.random.default_rng(0)))
    return (layout.planes_to_int32([out[f"OUT{k}"] for k in range(4)]) if planes else out["out"]), stats


def check_layer(kind, cfg, shape: ConvShape, *, seed=0, epilogue=(), planes=False, contract="double", **options):
    """Build, verify and run a layer of random values, compare it with numpy; the run's statistics."""
    rng = np.random.default_rng(seed)
    x = values(rng, cfg.inp_bits, (shape.n, shape.c, shape.h, shape.w))
    w = values(rng, cfg.wgt_bits, (shape.o, *(() if kind == "depthwise" else (shape.c,)), *shape.kernel))
    bias, (packed, columns) = rng.integers(-3000, 3000, shape.o), parameters(cfg, rng, shape.o, contract)
    kinds = {"kind": kind} if kind in ("max", "sum") else {}
    if kind == "dense":
        inputs = {
            "x": layout.pack_dense_activations(x[..., 0, 0], cfg),
            "w": layout.pack_dense_weights(w[..., 0, 0], cfg),
        }
    else:
        inputs = {"x": layout.pack_activations(x, cfg, block=cfg.block_out if kinds else cfg.block_in)}
        pack = layout.pack_depthwise_weights if kind == "depthwise" else layout.pack_weights
        inputs |= {} if kinds else {"w": pack(w, cfg)}
    named = {"b": bias[:, None, None], "q": columns}
    used = {other for _, other in epilogue if isinstance(other, str)}
    inputs |= {name: {"b": layout.pack_bias(bias, cfg), "q": packed}[name] for name in used}
    sch = READY[kind](cfg, shape, epilogue=epilogue, planes=planes, **kinds, **options)
    found, stats = outputs_of(sch, cfg, inputs, planes)
    acc = apply_stages(accumulators(kind, x, w, shape, options.get("pad_value") or 0), epilogue, named)
    expected = acc if planes else wrap(acc, cfg.out_bits)
    if kind == "dense":
        assert np.array_equal(layout.unpack_dense_activations(found, shape.o, n=shape.n), expected[..., 0, 0])
    else:
        assert np.array_equal(layout.unpack_activations(found, shape.o, cfg, n=shape.n), expected)
    return stats


@dataclass
class SearchFor:
    """A search that finds `found`, whatever it is asked."""

    found: Tile

    def tile(self, layer, vthreads):
        return self.found
