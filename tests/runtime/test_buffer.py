"""Element packing against Python integers, and the checks of a buffer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.errors import InputError, ProgramError
from tilewright.runtime.buffer import Buffer, Region, integers, pack_bits, unpack_bits


@pytest.mark.parametrize("bits", [2, 4, 8, 32])
def test_element_i_is_in_bits_i_times_width(bits):
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits - 1), 1 << bits - 1, (3, 8))
    buffer = Buffer("b", (3, 8), bits)
    data = buffer.pack(values)
    number = sum((int(v) % (1 << bits)) << (bits * i) for i, v in enumerate(values.ravel()))
    assert data.tobytes() == number.to_bytes(buffer.nbytes, "little")
    np.testing.assert_array_equal(buffer.unpack(data), values)


@given(st.sampled_from([2, 4]), st.lists(st.integers(0, 255), min_size=1, max_size=9))
def test_packing_takes_the_low_bits_and_unpacking_the_sign(bits, values):
    data = np.array(values, np.uint8)
    numbers = unpack_bits(data, bits)
    whole = int.from_bytes(data.tobytes(), "little")
    for i, number in enumerate(numbers.tolist()):
        assert number % (1 << bits) == whole >> i * bits & (1 << bits) - 1
        assert -(1 << bits - 1) <= number < 1 << bits - 1
    np.testing.assert_array_equal(pack_bits(numbers, bits), data)
    np.testing.assert_array_equal(pack_bits(numbers.astype(np.int32) + 16 * 1001, bits), data)


def test_unsigned_elements():
    buffer = Buffer("b", (4,), 4, signed=False)
    np.testing.assert_array_equal(buffer.unpack(buffer.pack(np.array([0, 7, 8, 15]))), [0, 7, 8, 15])
    assert Buffer("b", (2,), 8, signed=False).unpack(np.array([255, 1], np.uint8)).tolist() == [255, 1]


@pytest.mark.parametrize(
    "array, text",
    [
        (np.zeros((2, 3), int), "b: shape (2, 3) given, (2, 4) expected"),
        (np.zeros((2, 4)), "b: dtype float64 given, integers expected"),
        (np.full((2, 4), 8), "b: value 8 is outside -8..7 (4 bits)"),
        (np.full((2, 4), -9), "b: value -9 is outside -8..7 (4 bits)"),
    ],
)
def test_arrays_that_do_not_fit(array, text):
    with pytest.raises(InputError) as caught:
        Buffer("b", (2, 4), 4).pack(array)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "args, text",
    [
        (((4,), 8, True, "scratch"), "kind 'scratch' must be one of input, output, constant, temp"),
        (((4,), 3), "bits = 3: must be one of 2, 4, 8, 32"),
        (((4, 0),), "shape (4, 0): every dimension must be at least 1"),
        (((3,), 4), "4-bit elements of shape (3,) do not fill whole bytes"),
        (((4.0,),), "shape (4.0,): must be integers"),
        (((True,),), "shape (True,): must be integers"),
        (((4,), 8.0), "bits = 8.0: must be one of 2, 4, 8, 32"),
        (((4,), 8, 1), "signed = 1 must be true or false"),
        (((1 << 31, 1 << 31),), "4,611,686,018,427,387,904 bytes; at most 1,099,511,627,776 are allowed"),
        (((4,), 8, True, "input", None, 1 << 62), "align = 4611686018427387904 must be 1 to 16777216"),
        (((4,), 8, True, "input", None, 0), "align = 0 must be 1 to 16777216"),
        (((4,), 8, True, "constant"), "kind 'constant' needs data"),
        (((4,), 8, True, "constant", np.zeros(3, np.uint8)), "data must be 4 bytes (uint8)"),
    ],
)
def test_impossible_declarations(args, text):
    with pytest.raises(ProgramError) as caught:
        Buffer("b", *args)
    assert text in str(caught.value)


def test_words_may_be_unsigned():
    words = np.array([0, 1, 1 << 31, (1 << 32) - 1], np.uint32)
    buffer = Buffer("q", (4,), 32, signed=False)
    assert np.array_equal(buffer.unpack(buffer.pack(words)), words)
    assert Buffer("q", (4,), 32).unpack(buffer.pack(words)).tolist() == [0, 1, -(1 << 31), -1]


def test_regions_lie_within_their_buffer():
    whole = Buffer("whole", (64,), kind="temp")
    assert Region("part", (4, 8), whole=whole, start=32).kind == "temp"
    for start in (-1, 33):
        with pytest.raises(
            ProgramError, match=f"region 'part': bytes {start}..{start + 31} are outside 0..63 of buffer 'whole'"
        ):
            Region("part", (32,), whole=whole, start=start)
    with pytest.raises(ProgramError, match="needs `whole`"):
        Region("part", (32,))


def test_integers_are_counted_and_nothing_else_counts():
    assert integers("loop", np.array([3, 4], np.int8).tolist(), 2) == (3, 4)
    with pytest.raises(ProgramError, match=r"loop is \[3, 4\]: must be 3 integers"):
        integers("loop", [3, 4], 3)
    with pytest.raises(ProgramError, match=r"imm is \(1.5,\): must be 1 integer$"):
        integers("imm", tuple(np.array([1.5]).tolist()), 1)
