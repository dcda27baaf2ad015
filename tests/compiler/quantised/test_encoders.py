"""Transformer encoders, quantised by LiteRT's own quantiser: exact on the device, and where each part runs.

LiteRT is its reference kernels (resolver BUILTIN_REF), contract single: it rounds dense layers once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest


def norm(n, x):
    return n.binary("ADD", n.norm(x), n.bias(n.shape(x)[2]))


def scaled_norm(n, x):
    """The same in other parts, as Keras has them: the inverse root times the gains is a factor per element."""
    features = n.shape(x)[2]
    (mean, root), gains = n.moments(x), n.reals(1 + 0.1 * n.rng.normal(size=features))
    factor = n.binary("MUL", root, gains)
    return n.binary("ADD", n.binary("MUL", x, factor), n.binary("SUB", n.bias(features), n.binary("MUL", mean, factor)))


def heads(n, x, count):
    """(1, rows, features) as (1, heads, rows, features / heads)."""
    _, rows, features = n.shape(x)
    return n.transpose(n.reshape(x, 1, rows, count, features // count), 0, 2, 1, 3)


def attention(n, x, count, turned, mask=None):
    """Self-attention of `count` heads; with `turned` the keys are transposed by an operator of their own.

    `mask` is added to the scores.
    """
    _, rows, features = n.shape(x)
    width, scores = features // count, (1, count, rows, rows)
    q, k, v = (heads(n, n.dense(x, features), count) for _ in range(3))
    if turned:
        k = n.transpose(k, 0, 1, 3, 2)
    products = n.op("BATCH_MATMUL", [q, k], scores, adjY=not turned)
    products = n.binary("MUL", products, n.reals([1 / math.sqrt(width)]))
    weights = n.function("SOFTMAX", products if mask is None else n.binary("ADD", products, mask), beta=1.0)
    y = n.op("BATCH_MATMUL", [weights, v], (1, count, rows, width))
    return n.dense(n.reshape(n.transpose(y, 0, 2, 1, 3), 1, rows, features), features)


def gelu(n, x):
    return n.function("GELU", x)


def silu(n, x):
    return n.binary("MUL", x, n.function("LOGISTIC", x))


def of_keys(n, rows):
    """A mask that is an input: a number per key."""
    return n.input(1, 1, 1, rows)


def of_pairs(n, rows):
    """The same of each query and key."""
    return n.input(1, 1, rows, rows)


def of_bits(n, rows):
    """Keras' mask, made of an input that is 1 where a key counts: (1 - x) * -10."""
    bits = n.reshape(n.input(1, rows), 1, 1, 1, rows)
    return n.binary("MUL", n.binary("SUB", n.reals([1.0]), bits), n.reals([-10.0]))


@dataclass(frozen=True)
class Encoder:
    """An encoder of `layers` layers of (1, rows, features)."""

    rows: int
    features: int
    heads: int
    act: Callable = gelu
    layers: int = 1
    turned: bool = False
    norm: Callable = norm
    mask: Callable | None = None

    def path(self, n, **options):
        """The path of the quantised network."""
        x = n.input(1, self.rows, self.features)
        mask = None if self.mask is None else self.mask(n, self.rows)
        for _ in range(self.layers):
            x = n.binary("ADD", x, attention(n, self.norm(n, x), self.heads, self.turned, mask))
            h = self.act(n, n.dense(self.norm(n, x), 2 * self.features))
            x = n.binary("ADD", x, n.dense(h, self.features))
        n.output(x)
        return n.quantise(**options)


CASES = {
    "small": Encoder(16, 32, 2),
    "small, silu, narrow heads": Encoder(16, 32, 4, silu),
    "turned keys": Encoder(20, 48, 3, turned=True),
    "other norms": Encoder(16, 32, 2, norm=scaled_norm),
    "two layers": Encoder(16, 32, 2, silu, 2),
    "long": Encoder(128, 128, 4),
    "wide": Encoder(16, 256, 4),
    "wide, silu": Encoder(16, 256, 8, silu),
}
MASKED = {
    "of keys": Encoder(16, 32, 2, mask=of_keys),
    "of pairs": Encoder(20, 32, 2, silu, mask=of_pairs),
    "of bits, narrow heads": Encoder(16, 32, 4, mask=of_bits),
    "of keys, two layers": Encoder(16, 48, 3, layers=2, mask=of_keys),
}
LARGE = {"long and wide": Encoder(128, 256, 4), "long and wide, silu": Encoder(128, 256, 8, silu)}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("per_channel_dense", [False, True])
def test_the_reference_gives_the_bytes_of_litert(
    case, network, samples, golden, litert, assert_equal, per_channel_dense
):
    path = case.path(network(), per_channel_dense=per_channel_dense)
    given = samples(path)
    assert_equal(golden(path, given, "single"), litert(path, given))


def test_the_device_gives_the_bytes_of_the_reference(case, network, samples, on_device):
    path = case.path(network())
    shares = on_device(path, samples(path, 2), "pynq_z1_plus", "single")
    assert (shares.launches, shares.macs, shares.host) == (1, 1.0, set())


def test_without_tables_roots_softmax_and_functions_are_on_the_host(network, samples, on_device):
    path = CASES["two layers"].path(network())
    shares = on_device(path, samples(path), contract="single")
    assert (shares.launches, shares.macs, shares.host) == (9, 1.0, {"Lookup", "Softmax"})


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_may_be_an_input(name, network, samples, golden, litert, assert_equal, on_device):
    path = MASKED[name].path(network())
    given = samples(path, 2)
    assert_equal(golden(path, given, "single"), litert(path, given))
    shares = on_device(path, given, "pynq_z1_plus", "single")
    assert (shares.launches, shares.macs) == (1, 1.0) and "Softmax" not in shares.host


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_encoders(name, network, samples, golden, litert, assert_equal, on_device):
    path = LARGE[name].path(network())
    given = samples(path, 2)
    assert_equal(golden(path, given, "single"), litert(path, given))
    shares = on_device(path, given, "pynq_z1_plus", "single")
    assert (shares.launches, shares.macs, shares.host) == (1, 1.0, set())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))  # which also is in the test's name
def test_random_encoders(seed, network, samples, golden, litert, assert_equal):
    n = network()
    n.rng = np.random.default_rng(seed)
    rows, (features, heads) = (16, 20, 40)[seed // 3 % 3], ((32, 2), (48, 3), (64, 4))[seed % 3]
    made = Encoder(rows, features, heads, (gelu, silu)[seed % 2], norm=(norm, scaled_norm)[seed // 2 % 2])
    path = made.path(n, per_channel_dense=bool(seed % 5))
    given = samples(path)
    assert_equal(golden(path, given, "single"), litert(path, given))
