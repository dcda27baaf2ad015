"""int16 and int32 at the ends of networks: the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError

SHAPE = (3, 40)


@pytest.mark.parametrize("into", [("INT8", 0.05, -12), ("INT32", 1e-5, 0), ("INT16", 0.0013, 0)])
def test_quantize_of_int16(m, sequence, litert_sequence, into):
    kind, scale, zero_point = into
    x = m.input(SHAPE, 0.0004, 0, dtype="INT16")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, scale, zero_point, kind)]))
    path = m.save()
    inputs = m.rng.integers(-(1 << 15), 1 << 15, (4, *SHAPE)).astype(np.int16)
    (mine,), (theirs,) = sequence(path, inputs), litert_sequence(path, inputs)
    assert mine.dtype == kind.lower() and len(np.unique(mine)) > 20
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("scale", [2.0**-16, 1 / 65535])
def test_softmax_as_int16(m, sequence, litert_sequence, scale):
    x = m.input(SHAPE, 0.1, 4)
    m.output(m.node("SOFTMAX", [x], [m.tensor(SHAPE, scale, -(1 << 15), "INT16")], beta=1.0))
    path = m.save()
    inputs = m.rng.integers(-128, 128, (4, *SHAPE)).astype(np.int8)
    np.testing.assert_array_equal(sequence(path, inputs), litert_sequence(path, inputs))


def test_int16_elsewhere_is_refused(tflite):
    m = tflite()
    x = m.input(SHAPE, 0.0004, 0, dtype="INT16")
    m.output(m.node("RELU", [x], [m.tensor(SHAPE, 0.0004, 0, "INT16")]))
    with pytest.raises(UnsupportedError, match="has tensor 't0' of 16 bits; only activations of 8 bits are supported"):
        import_tflite(m.save())
    m = tflite()
    x = m.input(SHAPE, None, dtype="INT32")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, 0.5, 0)]))
    with pytest.raises(UnsupportedError, match="has int32 tensor 't0' with 0 scales; it needs one"):
        import_tflite(m.save())
    m = tflite()
    x = m.input(SHAPE, 1.0, 0, dtype="INT32")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, 0.5, 0, "INT16")]))
    with pytest.raises(UnsupportedError, match="whether R leaves 32 bits is True, expected False"):
        import_tflite(m.save())
