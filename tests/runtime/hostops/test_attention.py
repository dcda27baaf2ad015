"""runtime/hostops/attention.py and roots.py against real numbers, and against sums written out."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.errors import InputError
from tilewright.hw.rounding import quantize_multiplier
from tilewright.runtime.hostops import attention
from tilewright.runtime.hostops.roots import HIGH, LOW, THREE, inverse_root

SEED = 7


def at(place):
    return np.array([place], np.int32)


def int8(rng, *shape):
    return rng.integers(-128, 128, shape, np.int8)


@pytest.mark.parametrize("transposed", [False, True])
def test_products_are_sums_of_products(transposed):
    rng = np.random.default_rng(SEED)
    x, y = int8(rng, 2, 3, 4, 5), int8(rng, 3, 5, 6)
    given = y.swapaxes(1, 2).copy() if transposed else y
    found = attention.batch_matmul(
        x, given, zero_points=[3, -4, 5], multiplier=1 << 30, exponent=-6, transposed=transposed
    )
    sums = np.einsum("bhij,hjk->bhik", x.astype(int) - 3, y.astype(int) + 4)
    assert np.abs(found - np.clip(sums / 128 + 5, -128, 127)).max() <= 0.5 and found.dtype == np.int8  # ties: see R


def doubled(acc, factor):
    """R of contract double with Python's integers: a rounded product's high half, then a rounded shift."""
    multiplier, exponent = quantize_multiplier(factor)
    assert abs(acc) < 2**31 >> max(exponent, 0)
    high = ((acc << max(exponent, 0)) * multiplier + (1 << 30)) >> 31
    right = max(-exponent, 0)
    return int(math.copysign((abs(high) + (1 << right >> 1)) >> right, high))


def clamped(value):
    return max(-128, min(127, value))


def norm_attrs(gains, scale):
    """What compiler/graph/attention.py derives, with `gains` per element."""
    shift = max(0, math.ceil(math.log2(len(gains) * 2**14)) - 20)
    factors = [gain * math.sqrt(len(gains)) / 2**20 / 2 ** (shift / 2) / scale for gain in gains]
    pairs = np.array([quantize_multiplier(factor) for factor in factors])
    return factors, {"multiplier": pairs[:, 0], "exponent": pairs[:, 1]}


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 64, 65, 96, 288, 1000]), st.integers(1, 127))
def test_a_norm_is_the_real_one_to_a_step(seed, width, largest):
    rng = np.random.default_rng(seed)
    x, gains = rng.integers(-largest - 1, largest + 1, (2, width), np.int8), rng.uniform(0, 2, width)
    factors, attrs = norm_attrs(gains, 0.02)
    found = attention.rms_norm(x, **attrs)
    squares = [sum(int(v) ** 2 for v in row) for row in x]
    shift = max(0, (width - 1).bit_length() - 6)
    for row, square, y in zip(x, squares, found):
        root = int(inverse_root(np.array(square >> shift)))
        assert square < 2**31 and square >> shift <= 2**20
        assert y.tolist() == [clamped(doubled(int(v) * root, factor)) for v, factor in zip(row, factors)]
        if square >> shift >= 128:
            real = row / np.sqrt(square / width) * gains / 0.02
            assert np.abs(y - np.clip(real, -128, 127)).max() < 0.57 + 0.004 * 128
    assert not attention.rms_norm(np.zeros((1, width), np.int8), **attrs).any()


@pytest.mark.parametrize("width", [64, 96, 4096])
def test_a_norm_of_equal_elements_is_one_for_any_width(width):
    _, attrs = norm_attrs([1.0] * width, 0.05)
    for x in (100, -3, 127, -128):
        found = attention.rms_norm(np.full((1, width), x, np.int8), **attrs)
        assert (found == np.sign(x) * 20).all(), x


def test_a_rotation_turns_the_first_half_with_the_second():
    angles = np.array([[0.0, 0.0], [np.pi / 2, np.pi]])
    tables = {"cosine": np.round(np.cos(angles) * 2**14), "sine": np.round(np.sin(angles) * 2**14)}
    tables = {key: value.astype(np.int16) for key, value in tables.items()}
    x = np.array([[10, -128, 20, 5, 1, 2, 3, 4]], np.int8)  # two chunks
    assert attention.rotate(x, at(0), **tables).tolist() == x.tolist()
    assert attention.rotate(x, at(1), **tables).tolist() == [[-20, 127, 10, -5, -3, -2, 1, -4]]
    for place in (-1, 2):
        with pytest.raises(InputError, match=f"position {place} is not in the tables of angles, which end at 1; reset"):
            attention.rotate(x, at(place), **tables)


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 9))
def test_a_rotation_is_the_real_one_to_a_step(seed, chunks, width):
    rng = np.random.default_rng(seed)
    x, angles = int8(rng, 1, 2 * chunks * width), rng.uniform(-10, 10, (4, width))
    tables = [np.round(f(angles) * 2**14).astype(np.int16) for f in (np.cos, np.sin)]
    found = attention.rotate(x, at(3), cosine=tables[0], sine=tables[1]).reshape(chunks, 2, width)
    for chunk, turned in zip(x.reshape(chunks, 2, width).astype(int), found):
        for k in range(width):
            e, o, c, s = *chunk[:, k].tolist(), int(tables[0][3, k]), int(tables[1][3, k])
            assert turned[:, k].tolist() == [clamped(doubled(v, 2**-14)) for v in (e * c - o * s, e * s + o * c)]
            real = (e + 1j * o) * np.exp(1j * angles[3, k])
            assert np.abs(turned[:, k] - np.clip([real.real, real.imag], -128, 127)).max() < 0.52


def test_a_row_is_written_at_the_position_alone():
    cache = np.arange(12, dtype=np.int8).reshape(1, 3, 4, 1)
    row = np.array([[97, 98, 99]], np.int8)
    for place in (3, 7):  # modulo 4
        found = attention.write_rows(cache, row, at(place))
        assert np.array_equal(found[:, :, :3], cache[:, :, :3]) and found[0, :, 3, 0].tolist() == [97, 98, 99]
    assert cache.max() == 11


def test_a_block_is_written_as_columns_of_the_position():
    cache = np.zeros((1, 8, 3, 1), np.int8)
    block = np.arange(12, dtype=np.int8).reshape(1, 3, 4, 1) + 1
    for place in (4, 7):
        found = attention.write_columns(cache, block, at(place))
        assert not found[0, :4].any() and np.array_equal(found[0, 4:, :, 0], block[0, :, :, 0].T)
    assert not cache.any()
    for place in (-1, 8):
        with pytest.raises(InputError, match=f"position {place} is not in the cache, which end at 7"):
            attention.write_columns(cache, block, at(place))


@pytest.mark.parametrize("context", [16, 512, 513, 1024, 2048, 4096, 8192])
def test_reciprocals_of_all_sums_stay_in_int32(context):
    sums = np.arange(127, 127 * context + 1)
    left, down, right = attention.reciprocal_shifts(context)
    root = inverse_root(sums << left) >> down
    found = attention.reciprocal(sums, context)
    assert (sums << left).max() <= 2**20 and (root * root).max() < 2**31 and min(left, down, right) >= 0
    assert np.array_equal(found, (root * root) >> right) and (127 * sums * found).max() < 2**31
    errors = found * sums / 2**24 - 1
    assert errors.max() < 0.0005 and errors.min() > -(0.0015 + context / 2**17)


GROUPS = {"key_groups": [0, 0, 2, 1, -1], "value_groups": [2, 2, 0, 1, -1, 0]}


@given(st.integers(0, 2**32), st.integers(0, 31), st.sampled_from([0.02, 0.3, 4.0, 900.0]))
def test_attention_is_the_real_one(seed, place, score):
    """`score` is about how large scores are."""
    rng, (chunks, width, size, seen, wide) = np.random.default_rng(seed), (2, 5, 48, 32, 6)
    q, k = (int8(rng, 1, count * 2 * width) for count in (chunks, size))
    k, v = k.reshape(1, -1, size, 1), rng.integers(-127, 128, (1, size, wide, 1), np.int8)
    factors = score * 40 / 100**2, 1 / 2**24
    pairs = [quantize_multiplier(factor) for factor in factors]
    attrs = {"multipliers": [m for m, _ in pairs], "exponents": [e for _, e in pairs], "seen": seen}
    found = attention.attention(q, k, v, at(place), **GROUPS, **attrs).reshape(chunks, wide)
    lanes = GROUPS["key_groups"] * 2
    for r, lane in np.ndindex(chunks, wide):
        group = GROUPS["value_groups"][lane]
        if group < 0:
            assert not found[r, lane]
            continue
        mine = [i for i, other in enumerate(lanes) if other == group]
        query, keys = q.reshape(chunks, -1)[r, mine].astype(int), k[0, mine, :seen, 0].astype(int)
        dots = (query @ keys).tolist()
        t = [doubled(dot, factors[0]) - (128 << 20) * (n > place) for n, dot in enumerate(dots)]
        below = [max(-128, min(127, each - max(t) + 127)) for each in t]
        e = [round(127 * math.exp((each - 127) / 40)) for each in below]
        assert not any(e[place + 1 :]) and sum(e) >= 127
        number = sum(weight * int(v[0, n, lane, 0]) for n, weight in enumerate(e))
        root = int(inverse_root(np.array(sum(e) << 4)))
        product = number * (root * root >> 12)
        assert abs(product) < 2**31 and found[r, lane] == clamped(doubled(product, factors[1]))
        exact = np.exp(np.array(dots[: place + 1]) * (score / 100**2) - max(dots[: place + 1]) * (score / 100**2))
        real = exact / exact.sum() @ v[0, : place + 1, lane, 0]
        assert abs(found[r, lane] - real) < 5  # a score is rounded to 1/40, a weight to 1/127
    with pytest.raises(InputError, match="position 32 is not in the positions that are read, which end at 31"):
        attention.attention(q, k, v, at(seen), **GROUPS, **attrs)


def test_rows_of_a_block_are_those_of_its_tokens():
    """Whatever is written, turned or attended for 4 tokens together is that of one after the other."""
    rng, tokens = np.random.default_rng(SEED), 4
    angles = {key: rng.integers(-(1 << 14), 1 << 14, (12, 5), np.int16) for key in ("cosine", "sine")}
    x, rows, keys = int8(rng, tokens, 20), int8(rng, tokens, 10), int8(rng, 1, 10, 12, 1)
    values, part = rng.integers(-127, 128, (1, 12, 6, 1), np.int8), int8(rng, 1, 6, 4, 1)
    attend = partial(attention.attention, multipliers=[1 << 30] * 2, exponents=[-8, -24], seen=12, **GROUPS)
    for number in range(3):
        places, written = [at(number * tokens + k) for k in range(tokens)], keys
        turned = [attention.rotate(row[None], place, **angles)[0] for row, place in zip(x, places)]
        assert np.array_equal(attention.rotate(x, at(number), **angles), turned)
        for row, place in zip(rows, places):
            written = attention.write_rows(written, row[None], place)
        assert np.array_equal(attention.write_rows(keys, rows, at(number)), written)
        found = attention.write_columns(values, part, at(number), tokens=tokens)
        assert np.array_equal(found, attention.write_columns(values, part, places[3]))
        one = [attend(row[None], keys, values, place)[0] for row, place in zip(x, places)]
        assert np.array_equal(attend(x, keys, values, at(number)), one)
    ring = attention.write_rows(keys[:, :, :8], rows, at(3))
    assert np.array_equal(ring[0, :, 4:, 0].T, rows)
    with pytest.raises(InputError, match="position 12 is not in the tables of angles, which end at 11"):
        attention.rotate(x, at(3), **angles)


ALL = np.arange((1 << 20) + 1)


def wrapped(x):
    """Its value as int32; the test is that nothing changes."""
    assert np.abs(x).max() < 2**31
    return x.astype(np.int32).astype(np.int64)


def test_no_value_on_the_way_leaves_int32():
    """The definition, written out again with every intermediate value checked."""
    r = np.array([HIGH[min(s >> 12, 255)] for s in ALL], np.int64) + LOW[np.clip((ALL >> 6) - 128, -128, 127) + 128]
    for _ in range(2):
        t = wrapped(wrapped(wrapped(ALL * r) >> 10) * r)
        r = wrapped(r * (3 * 2**11 - (t >> 19))) >> 12
    assert np.array_equal(inverse_root(ALL), r) and (r > 0).all()


def test_it_is_close_to_the_real_root():
    real, found = 2**20 / np.sqrt(np.maximum(ALL, 1)), inverse_root(ALL)
    errors = np.abs(found / real - 1)
    assert errors[128:].max() < 0.001 and errors[64:].max() < 0.0033 and (found <= real)[:32].all()
    assert inverse_root(np.array(0)) == found.max()


def test_the_tables_are_as_the_accelerator_reads_them():
    assert HIGH.shape == LOW.shape == (256,) and HIGH.dtype == LOW.dtype == np.int32
    assert set(HIGH[:4]) == {round(2**20 / (2**14 - 32) ** 0.5)} and LOW[255] == 0 and THREE == 3 * 2**11
    assert HIGH[100] == round(2**20 / (100.5 * 4096) ** 0.5) and LOW[9] + HIGH[0] == round(2**20 / (9.5 * 64) ** 0.5)
