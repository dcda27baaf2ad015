"""runtime/hostops/roots.py for every argument: within int32, and close to the real root."""

import numpy as np

from tilewright.runtime.hostops import roots
from tilewright.runtime.hostops.roots import HIGH, LOW, inverse_root

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
    assert set(HIGH[:4]) == {round(2**20 / (2**14 - 32) ** 0.5)} and LOW[255] == 0 and roots.THREE == 3 * 2**11
    assert HIGH[100] == round(2**20 / (100.5 * 4096) ** 0.5) and LOW[9] + HIGH[0] == round(2**20 / (9.5 * 64) ** 0.5)
