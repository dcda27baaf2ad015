"""float32 to int8 in integers: equal to the host's kernel for every value that is tried, and monotonic."""

import numpy as np
import pytest

from tilewright.compiler.kernels.quantise_steps import MANTISSA, edges, steps_of
from tilewright.runtime.hostops.elementwise import quantize

RNG = np.random.default_rng(8)
# scales of published networks, powers of two and their neighbours, far ends
SCALES = [(0.02351972833275795, -18), (0.007839307188987732, 0), (1 / 255, -128), (2 / 255, -1), (1 / 128, 0)]
SCALES += [(1.0, 0), (float(np.nextafter(np.float32(1), np.float32(0))), 127), (0.1, 3), (2.0**-63, 5), (2.0**63, -77)]
SCALES = [(float(np.float32(scale)), zero) for scale, zero in SCALES]


def exact(steps, x, scale, zero_point):
    return np.array_equal(steps.apply(x), quantize(x, scale=scale, zero_point=zero_point, ties_away=True))


@pytest.mark.parametrize("scale, zero_point", SCALES)
def test_random_bits_and_numbers_near_the_scale(scale, zero_point):
    steps = steps_of(scale, zero_point)
    bits = RNG.integers(-(2**31), 2**31, 100_000).astype(np.int32).view(np.float32)
    near = (RNG.normal(size=100_000) * 100 * scale).astype(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45], np.float32)
    assert exact(steps, np.concatenate([bits[~np.isnan(bits)], near, ends]), scale, zero_point)


@pytest.mark.parametrize("scale, zero_point", SCALES[:4])
def test_numbers_around_every_change(scale, zero_point):
    at = edges(scale).view(np.int32)
    x = (at[:, None] + np.arange(-40, 41, dtype=np.int32)).view(np.float32).reshape(-1)
    assert exact(steps_of(scale, zero_point), x[~np.isnan(x)], scale, zero_point)


@pytest.mark.parametrize("scale, zero_point", SCALES)
def test_results_grow_with_the_values(scale, zero_point):
    # across the exponents of the value and of the quotient, then within: what the proof by edges needs
    steps, bits = steps_of(scale, zero_point), int(np.float32(scale).view(np.int32))
    starts = np.concatenate([start + (np.arange(-3, 9) << MANTISSA) for start in (bits, bits >> MANTISSA << MANTISSA)])
    x = (starts[:, None] + np.arange(-300, 300)).astype(np.int32).view(np.float32).reshape(-1)
    assert steps is not None
    whole = np.sort(np.concatenate([x, -x, edges(scale)]))
    assert (np.diff(steps.apply(whole).astype(int)) >= 0).all()


def test_every_change_lies_between_two_edges():
    x = np.unique(edges(0.0235))
    results = quantize(x, scale=0.0235, zero_point=100, ties_away=True).astype(int)
    changes = np.flatnonzero(np.diff(results))
    assert len(changes) == 255 and (np.diff(results)[changes] == 1).all()
    assert np.array_equal(np.nextafter(x[changes], np.float32(np.inf)), x[changes + 1])


def test_most_scales_have_steps_and_where_one_has_none_nothing_is_found():
    scales = np.exp(RNG.uniform(-12, 6, 30)).astype(np.float32)
    found = [steps_of(float(scale), int(RNG.integers(-128, 128))) for scale in scales]
    assert sum(steps is not None for steps in found) >= 20
    assert steps_of(2.0**-100, 0) is None and steps_of(2.0**100, 0) is None
