"""Steps of the operators of runtime/hostops/token_scales.py, and their meanings in Python's integers, with loops."""

import math
from fractions import Fraction

import numpy as np

from tilewright.runtime.hostops.roots import inverse_root

GAIN = np.array([3, -200, 32767, 0, 17], np.int16)
CHANNELS = {"multiplier": np.array([16384, 20000, 32767, 0], np.int32)}
CHANNELS |= {"exponent": np.array([-20, -25, -14, 3], np.int32)}
ANGLES = {"cosine": np.full((100, 3), 16384, np.int16), "sine": np.full((100, 3), -9000, np.int16)}
HEADS = {"heads": 4, "kv_heads": 2, "multiplier": 30000, "exponent": -17}
EXAMPLES = {
    "token_bytes": ([(3, 5)], "int32", {"gain": GAIN}),
    "token_scales": ([(3, 5)], "int32", {"gain": GAIN, "epsilon": 12345}),
    "scale_token_sums": (
        [(1, 4, 6, 1), (3, 2), (3, 4)],
        "int32",
        {**CHANNELS, "bias": np.array([0, -5, 1 << 30, 7], np.int32), "dtype": "int32"},
    ),
    "token_logits": ([(1, 4, 6, 1), (3, 2)], "int32", {"scale": np.array([0.5, 3e-9, 1e-3, 7], np.float32)}),
    "embed_tokens": ([(3,)], "int32", {"table": np.arange(-127, 73).reshape(100, 2).astype(np.int8)}),
    "rotate_pairs": ([(1, 20), (1,)], "int16 int32", {**ANGLES, "heads": 2}),
    "write_tokens": ([(100, 8), (1, 20), (1,)], "int16 int16 int32", {"start": 12}),
    "cache_attention": ([(1, 30), (100, 12), (1,)], "int16 int16 int32", HEADS),
    "gated_product": ([(3, 8)], "int32", {"multiplier": 20000, "exponent": -20, "shift": 3}),
}
EXAMPLES["embed_tokens"][2].update(
    multiplier=np.full(100, 20000, np.int32), exponent=np.arange(-30, -10, 0.2).astype(np.int32)
)
REFUSED_INPUTS = [
    ("token_bytes", {0: (3, 4)}, {}, "the gains do not fit rows"),
    ("token_scales", {0: (3, 5, 1)}, {}, r"rows are int32 \(3, 5, 1\): must be int16 or int32"),
    ("scale_token_sums", {0: (1, 4, 5, 1)}, {}, r"must be int32 \(1, C, 2 \* T, 1\)"),
    ("scale_token_sums", {1: (2, 2)}, {}, r"scales are int32 \(2, 2\): must be int32 \(3, 2\)"),
    ("scale_token_sums", {0: (1, 5, 6, 1)}, {}, "parameters per channel do not fit sums"),
    ("scale_token_sums", {2: (3, 5)}, {}, r"the residual must be int32 \(3, 4\)"),
    ("embed_tokens", {0: (3, 1)}, {}, r"tokens are \(3, 1\): must be \(T,\)"),
    ("embed_tokens", {}, {"exponent": np.zeros(3, np.int32)}, "scales of rows do not fit 100 words"),
    ("rotate_pairs", {0: (101, 20)}, {}, "do not fit 101 tokens"),
    ("rotate_pairs", {}, {"heads": 4}, "4 heads of 6 do not fit rows of 20"),
    ("rotate_pairs", {1: (2,)}, {}, r"the position is int32 \(2,\)"),
    ("write_tokens", {}, {"start": 13}, "do not fit the cache"),
    ("cache_attention", {}, {"heads": 3}, "3 and 2 heads do not fit a cache"),
    ("cache_attention", {0: (1, 11)}, {}, "do not fit 4 heads and a cache"),
    ("gated_product", {0: (3, 7)}, {}, "rows of 7: must be as many gates as others"),
]


def near(x, exponent):
    """x * 2**exponent, to the nearest integer, ties up."""
    return math.floor(Fraction(int(x)) * Fraction(2) ** int(exponent) + Fraction(1, 2))


def clip(x, bits=32):
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, x))


def in_16_bits(row, least=-15):
    most = max(abs(int(v)) for v in row)
    exponent = max((most + most // 128).bit_length() - 15, least)
    return [near(v, -exponent) for v in row], exponent


def gained(row, gain):
    rows, before = in_16_bits(row, 0)
    values, exponent = in_16_bits(rows if gain is None else [v * int(w) for v, w in zip(rows, gain)])
    return rows, before, values, exponent


def token_bytes(x, gain=None):
    values = np.array([gained(row, gain)[2] for row in x])
    high = (values + 128) // 256
    return np.concatenate([high, values - 256 * high]).T[None, :, :, None]


def token_scales(x, gain=None, epsilon=0):
    found = []
    for row in x:
        rows, before, _, exponent = gained(row, gain)
        if gain is None:
            found.append((1, exponent + before))
            continue
        squares = max(1, sum(v * v for v in rows) + epsilon // 4**before)
        half = (squares.bit_length() - 19) // 2  # so that squares / 4**half has 19 or 20 bits
        root = inverse_root(np.array(math.floor(Fraction(squares) / Fraction(4) ** half)))
        found.append((int(root), exponent - half))
    return np.array(found)


def scale_token_sums(acc, scales, residual=None, *, multiplier, exponent, bias, dtype):
    tokens, channels = acc.shape[2] // 2, acc.shape[1]
    found = np.zeros((tokens, channels), np.int64)
    for t, c in np.ndindex(tokens, channels):
        whole = (256 * int(acc[0, c, t, 0]) + int(acc[0, c, t + tokens, 0])) * int(scales[t, 0]) * int(multiplier[c])
        y = clip(near(whole, scales[t, 1] + exponent[c])) + int(bias[c])
        found[t, c] = clip(y + (0 if residual is None else int(residual[t, c])), 8 * np.dtype(dtype).itemsize)
    return found


def token_logits(acc, scales, scale):
    high, low = np.split(acc[0, :, :, 0].T, 2)
    return (256 * high + low) * (scales[:, :1] * 2.0 ** scales[:, 1:]) * scale


def embed_tokens(tokens, table, multiplier, exponent):
    return [[near(v * multiplier[token], exponent[token]) for v in table[token]] for token in tokens]


def rotate_pairs(x, position, cosine, sine, heads):
    found, half = x.copy(), cosine.shape[1]
    for t, head, k in np.ndindex(len(x), heads, half):
        at, row = 2 * (head * half + k), position[0] * len(x) + t
        turned = (int(x[t, at]) + 1j * int(x[t, at + 1])) * (int(cosine[row, k]) + 1j * int(sine[row, k]))
        found[t, at : at + 2] = [clip(near(part, -14), 16) for part in (turned.real, turned.imag)]
    return found


def write_tokens(cache, rows, position, start):
    found = cache.copy()
    for k, row in enumerate(rows):
        found[position[0] * len(rows) + k] = row[start : start + cache.shape[1]]
    return found


def cache_attention(x, cache, position, heads, kv_heads, multiplier, exponent):
    size = cache.shape[1] // 2 // kv_heads
    keys, values = cache[:, : kv_heads * size], cache[:, kv_heads * size :]
    found = np.zeros((len(x), heads * size), np.int64)
    for t, head in np.ndindex(len(x), heads):
        own, shared = slice(head * size, (head + 1) * size), head * kv_heads // heads * size
        shared = slice(shared, shared + size)
        seen = range(position[0] * len(x) + t + 1)
        scores = [near(int(x[t, own] @ keys[p, shared]) * multiplier, exponent) for p in seen]
        steps = [min(max(scores) - score, 4095) for score in scores]
        parts = [[round(32768 * np.exp(-v)) for v in (step // 64 / 4, step % 64 / 256)] for step in steps]
        weights = [near(a * b, -15) for a, b in parts]
        for k, column in enumerate(range(shared.start, shared.stop)):
            total = sum(w * int(values[p, column]) for p, w in zip(seen, weights))
            found[t, own.start + k] = math.floor(Fraction(total, sum(weights)) + Fraction(1, 2))
    return found


def gated_product(x, multiplier, exponent, shift):
    found = np.zeros((len(x), x.shape[1] // 2), np.int64)
    for t, c in np.ndindex(*found.shape):
        gate, up = int(x[t, c]), int(x[t, c + found.shape[1]])
        argument = near(gate * multiplier, exponent)
        entry, rest = divmod(min(abs(argument), 65535), 256)
        first, second = (round(65536 / (1 + np.exp(-k / 16))) for k in (entry, entry + 1))
        sigmoid = first + near((second - first) * rest, -8)
        silu = near(gate * (sigmoid if argument >= 0 else 65536 - sigmoid), -16)
        found[t, c] = clip(near(silu * up, -shift))
    return found


MEANINGS = {
    function.__name__: function
    for function in (
        *(token_bytes, token_scales, scale_token_sums, token_logits, embed_tokens),
        *(rotate_pairs, write_tokens, cache_attention, gated_product),
    )
}


def steps():
    """Further steps, at the edges: rows of zeros, the largest values, several tokens in blocks."""
    rng = np.random.default_rng(5)

    def some(shape, dtype):
        info = np.iinfo(dtype)
        sizes = rng.integers(0, np.iinfo(dtype).bits, shape)
        found = rng.integers(info.min, info.max, shape, np.int64, endpoint=True) >> sizes
        return np.where(rng.random(shape) < 0.1, rng.choice([info.min, 0, info.max], shape), found).astype(dtype)

    edges = [np.zeros((2, 5), "i4"), np.full((1, 5), -(1 << 31)), np.array([[32513, 3, 0, 0, 1], [255, 1, 2, 3, 4]])]
    for x in (*(each.astype(np.int32) for each in edges), some((40, 5), "int32"), some((40, 5), "int16")):
        for gain in (GAIN, np.full(5, -32768, np.int16)):
            yield "token_bytes", [x], {"gain": gain}
            for epsilon in (0, 1, 1 << 60):
                yield "token_scales", [x], {"gain": gain, "epsilon": epsilon}
        yield "token_bytes", [x], {}
        yield "token_scales", [x], {}
    for dtype, inputs in (("int16", 2), ("int32", 3), ("int32", 2)):
        acc, factors = (
            some((1, 4, 80, 1), "int32") >> 8,
            np.stack([some(40, "int16") >> 5, rng.integers(-60, 40, 40)], 1),
        )
        arrays = [acc, factors.astype(np.int32), some((40, 4), "int32")]
        facts = {**CHANNELS, "bias": some(4, "int32"), "dtype": dtype}
        yield "scale_token_sums", arrays[:inputs], facts
    for tokens, block in ((1, 5), (3, 2)):
        place = np.array([block], np.int32)
        angles = {key: (some((100, 3), "int16") >> 1).astype(np.int16) for key in ANGLES}
        yield "rotate_pairs", [some((tokens, 20), "int16"), place], {**angles, "heads": 3}
        cache, rows = some((20, 12), "int16"), some((tokens, 30), "int16")
        yield "write_tokens", [cache, rows, place], {"start": 18}
        yield "cache_attention", [rows, cache, place], {**HEADS, "exponent": -33}
        yield "cache_attention", [rows >> 6, cache >> 6, place], {**HEADS, "kv_heads": 1, "heads": 3}
    for exponent, shift in ((-20, 3), (-31, 31), (-40, 62), (-15, -3)):
        yield "gated_product", [some((40, 8), "int32")], {"multiplier": 20000, "exponent": exponent, "shift": shift}
