"""Elements of buffers against Python integers; packed layouts: single elements, round trips, padding, errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import EncodingError, InputError, ProgramError
from tilewright.runtime import layout
from tilewright.runtime.buffer import Buffer, Region, pack_bits, shape_of, unpack_bits

CFG = Config(batch=2, block_in=8, block_out=4, wgt_bits=4, wgt_bytes=1 << 14, acc_bytes=1 << 16)
TWO = PRESETS["tiny_two"]
FOUR = Config(block_in=4, block_out=8, axi_bits=32, extensions=frozenset({"pad_value", "wgt4"}))
RNG = np.random.default_rng(1)
B4, B64 = Buffer("b", (2, 4), 4), Buffer("whole", (64,), kind="temp")


def cast(value: Any) -> Any:
    """A value of a type that a caller should not give."""
    return value


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8, 32])
def test_element_i_is_in_bits_i_times_width(bits, signed):
    low = -(1 << bits - 1) if signed else 0
    values = np.random.default_rng(bits).integers(low, low + (1 << bits), (3, 8))
    buffer = Buffer("b", (3, 8), bits, signed)
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


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: B4.pack(np.zeros((2, 3), int)), InputError, "b: shape (2, 3) given, (2, 4) expected"),
        (lambda: B4.pack(np.zeros((2, 4))), InputError, "b: dtype float64 given, integers expected"),
        (lambda: B4.pack(np.full((2, 4), 8)), InputError, "b: value 8 is outside -8..7 (4 bits)"),
        (lambda: B4.pack(np.full((2, 4), -9)), InputError, "b: value -9 is outside -8..7 (4 bits)"),
        (lambda: Buffer("b", (4,), kind="scratch"), ProgramError, "kind = 'scratch': must be one of input, output"),
        (lambda: Buffer("b", (4,), 3), ProgramError, "bits = 3: must be one of 2, 4, 8, 32"),
        (lambda: Buffer("b", (4,), cast(8.0)), ProgramError, "bits = 8.0: must be one of 2, 4, 8, 32"),
        (lambda: Buffer("b", (4, 0)), ProgramError, "shape (4, 0): every dimension must be at least 1"),
        (lambda: Buffer("b", (3,), 4), ProgramError, "4-bit elements of shape (3,) do not fill whole bytes"),
        (lambda: Buffer("b", (cast(4.0),)), ProgramError, "shape (4.0,): must be integers"),
        (lambda: Buffer("b", (True,)), ProgramError, "shape (True,): must be integers"),
        (lambda: Buffer("b", cast(16)), ProgramError, "shape 16: must be a tuple of integers, as (16,)"),
        (lambda: Buffer("b", cast(np.zeros((2, 3)))), ProgramError,
         "buffer 'b': shape is a tensor, ndarray; give its sizes, as x.shape"),
        (lambda: Buffer("b", (4,), 8, cast(1)), ProgramError, "signed = 1: must be true or false"),
        (lambda: Buffer("b", (1 << 31, 1 << 31)), ProgramError,
         "4,611,686,018,427,387,904 bytes; at most 1,099,511,627,776 are allowed"),
        (lambda: Buffer("b", (4,), align=1 << 62), ProgramError,
         "align = 4611686018427387904: must be an integer from 1 to 16777216"),
        (lambda: Buffer("b", (4,), align=0), ProgramError, "align = 0: must be an integer from 1 to 16777216"),
        (lambda: Buffer("b", (4,), kind="constant"), ProgramError, "kind 'constant' needs data"),
        (lambda: Buffer("b", (4,), kind="constant", data=np.zeros(3, np.uint8)), ProgramError,
         "data must be 4 bytes (uint8)"),
        (lambda: Region("part", (32,), whole=B64, start=-1), ProgramError,
         "region 'part': bytes -1..30 are outside 0..63 of buffer 'whole'"),
        (lambda: Region("part", (32,), whole=B64, start=33), ProgramError, "bytes 33..64 are outside 0..63"),
        (lambda: Region("part", (32,)), ProgramError, "needs `whole`"),
    ],
)  # fmt: skip
def test_buffers_and_arrays_that_do_not_fit(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


def test_sizes_and_regions_of_buffers():
    assert shape_of("b", [np.int64(3), 4]) == (3, 4) and shape_of("b", np.array([3, 4])) == (3, 4)
    assert Region("part", (4, 8), whole=B64, start=32).kind == "temp"


@pytest.mark.parametrize(
    "x, order, block, c, shape, wanted",
    [
        ((3, 11, 4, 5), "NCHW", None, 11, (2, 2, 4, 5, 2, 8), {(1, 1, 3, 2, 0, 2): (2, 10, 3, 2)}),
        ((3, 4, 5, 11), "NHWC", None, 11, (2, 2, 4, 5, 2, 8), {(1, 1, 3, 2, 0, 2): (2, 3, 2, 10)}),
        ((3, 11, 4, 5), "NCHW", 4, 11, (2, 3, 4, 5, 2, 4), {(1, 2, 3, 2, 0, 2): (2, 10, 3, 2)}),
        ((5, 19), None, None, 19, (3, 3, 2, 8), {(2, 1, 0, 3): (4, 11)}),
    ],
)
def test_activations_put_each_value_where_the_layout_says(x, order, block, c, shape, wanted):
    values = RNG.integers(-128, 128, x, np.int8)
    if order is None:
        packed = layout.pack_dense_activations(values, CFG)
        back = layout.unpack_dense_activations(packed, c, n=x[0])
    else:
        packed = layout.pack_activations(values, CFG, block=block, layout=order)
        back = layout.unpack_activations(packed, c, CFG, n=x[0], layout=order)
    assert packed.shape == shape and packed.astype(int).sum() == values.astype(int).sum()  # padded with zeros
    assert all(packed[there] == values[here] for there, here in wanted.items())
    np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("pads", [(0, 0), (2, 3), (9, 8)])
def test_windows_are_folded_byte_by_byte(pads):
    x = np.random.default_rng(4).integers(-128, 128, (2, 3, 6, 7), np.int8)
    facts = {"rows": 2, "dilation": 2, "step": 3, "strips": 5, "group": 12, "offsets": (0, 5), "entries": 5}
    out = layout.fold_windows(x, **facts, top=pads[0], left=pads[1], value=-7, block=8)
    assert out.shape == (2, 5, 5, 1, 8) and out.dtype == np.int8
    for n, strip, entry, lane in np.ndindex(2, 5, 5, 8):
        column, rest = divmod(entry // 2 * 12 + (0, 5)[entry % 2] + lane, 6)
        row, channel = strip * 3 + rest // 3 * 2 - pads[0], rest % 3
        column -= pads[1]
        inside = 0 <= row < 6 and 0 <= column < 7
        assert out[n, strip, entry, 0, lane] == (x[n, channel, row, column] if inside else -7)


def test_entries_that_overlap_are_folded_in_parts():
    """A window every 3 bytes, 16 bytes long: the last ones take zeros of no image, and nothing beyond the strip."""
    x = RNG.integers(-128, 128, (1, 1, 2, 9), np.int8)
    facts = {"rows": 1, "dilation": 1, "step": 1, "strips": 2, "group": 3, "offsets": (0, 2, 7), "entries": 8}
    out = layout.fold_windows(x, **facts, top=0, left=0, value=5, block=16)
    padded = np.pad(x[0, 0], [(0, 0), (0, 40)], constant_values=5)
    for strip, entry in np.ndindex(2, 8):
        first = entry // 3 * 3 + (0, 2, 7)[entry % 3]
        np.testing.assert_array_equal(out[0, strip, entry, 0], padded[strip, first : first + 16])


IMAGE = np.zeros((1, 2, 4, 4), np.int8)
FOLDED: dict[str, Any] = {
    "rows": 2,
    "dilation": 1,
    "step": 1,
    "strips": 3,
    "group": 12,
    "offsets": [0, 5],
    "entries": 5,
}
FOLDED |= {"top": 0, "left": 0, "value": 0, "block": 8}


@pytest.mark.parametrize("name", ["rows", "dilation", "step", "strips", "group", "entries", "block", "top", "left"])
@pytest.mark.parametrize("value", [-1, -(1 << 40)])
def test_numbers_that_describe_no_strips(name, value):
    with pytest.raises(InputError, match=f"fold_windows: {name} = {value}: must be at least [01]"):
        layout.fold_windows(IMAGE, **{**FOLDED, name: value})


@pytest.mark.parametrize("order", ["OIHW", "OHWI"])
def test_weights_put_each_value_where_the_layout_says(order):
    w = RNG.integers(-8, 8, (6, 9, 3, 2), np.int8)
    packed = layout.pack_weights(w if order == "OIHW" else w.transpose(0, 2, 3, 1), CFG, layout=order)
    assert packed.shape == (2, 2, 3, 2, 4, 8)
    assert packed[1, 1, 2, 1, 1, 0] == w[5, 8, 2, 1]
    assert packed.astype(int).sum() == w.astype(int).sum()


@pytest.mark.parametrize("order", ["OIHW", "OHWI"])
def test_ternary_weights_are_two_bits_by_block_channel_and_input(order):
    w = RNG.integers(-1, 2, (18, 6, 3, 2))
    packed = layout.pack_ternary_weights(w if order == "OIHW" else w.transpose(0, 2, 3, 1), TWO, layout=order)
    assert packed.shape == (2, 2, 3, 2, 16) and packed.dtype == np.uint8  # 4 blocks of 4 channels, 4 inputs
    for o, i, y, x in ((0, 0, 0, 0), (13, 2, 1, 1), (17, 5, 2, 1)):
        element = (o // 4 % 4 * 4 + o % 4) * 4 + i % 4
        code = int.from_bytes(packed[o // 16, i // 4, y, x].tobytes(), "little") >> 2 * element & 3
        assert code == {0: 0, 1: 1, -1: 3}[w[o, i, y, x]]


def test_dense_weights_and_bias():
    w = RNG.integers(-8, 8, (6, 9), np.int8)
    assert layout.pack_dense_weights(w, CFG)[1, 1, 1, 0] == w[5, 8]
    bias = layout.pack_bias(np.arange(6), CFG)
    assert bias.shape == (2, 2, 4) and bias.dtype == np.int32 and (bias[1] == [4, 5, 0, 0]).all()


@pytest.mark.parametrize("order", ["CHW", "HWC"])
def test_depthwise_weights_are_rows_back_to_back(order):
    cfg = PRESETS["tiny"]  # blocks of 4
    w = RNG.integers(-128, 128, (6, 3, 2), np.int8)
    packed = layout.pack_depthwise_weights(w if order == "CHW" else w.transpose(1, 2, 0), cfg, layout=order)
    assert packed.shape == (3, 4, 4) and packed.dtype == np.int8  # 2 groups of 6 rows in 3 entries of 4
    rows = packed.reshape(-1, 4)
    for c, y, x in np.ndindex(6, 3, 2):
        assert rows[(c // 4 * 3 + y) * 2 + x, c % 4] == w[c, y, x]
    assert packed.astype(int).sum() == w.astype(int).sum()


@pytest.mark.parametrize("kw, pitch", [(1, 1), (2, 4), (3, 4), (4, 4), (5, 8)])
def test_rows_of_a_kernel_fill_whole_groups_for_several_taps(kw, pitch):
    cfg = PRESETS["pynq_z1_plus"]
    w = RNG.integers(-128, 128, (20, 2, kw), np.int8)
    rows = layout.pack_depthwise_weights(w, cfg).reshape(-1, 16)
    assert layout.depthwise_pitch(cfg, kw) == pitch and layout.depthwise_pitch(PRESETS["pynq_z1"], kw) == kw
    for c, y, x in np.ndindex(20, 2, kw):
        assert rows[(c // 16 * 2 + y) * pitch + x, c % 16] == w[c, y, x]
    assert rows.astype(int).sum() == w.astype(int).sum()


PAR = {"bias": 0, "multiplier": 1 << 30, "exponent": 0, "zero_point": 0, "low": -128, "high": 127, "contract": "double"}


@pytest.mark.parametrize("contract, mode", [("double", 0), ("single", 1)])
def test_parameters_are_twelve_bytes_per_channel(contract, mode):
    cfg, n = PRESETS["tiny"], 6
    columns = {
        "bias": RNG.integers(-(1 << 30), 1 << 30, n),
        "multiplier": RNG.integers(1 << 30, 1 << 31, n),
        "exponent": np.array([-32, -1, 0, 1, 30, 31]),
        "zero_point": RNG.integers(-128, 128, n),
    }
    packed = layout.pack_par(cfg, **columns, low=-5, high=100, contract=contract)
    assert packed.shape == (2, 4, 3) and packed.dtype == np.uint32
    data = packed.tobytes()
    for c in range(n):
        number = int.from_bytes(data[12 * c : 12 * c + 12], "little")
        expected = [int(column[c]) for column in columns.values()] + [-5, 100, mode]
        for value, bits in zip(expected, (32, 31, 6, 8, 8, 8, 1)):
            assert number & (1 << bits) - 1 == value % (1 << bits)
            number >>= bits
        assert number == 0
    assert not any(data[12 * n :])


@pytest.mark.parametrize("change, error, text", [
    ({"contract": "fp32"}, InputError, "contract 'fp32': must be one of double, single"),
    ({"bias": [1, 2, 3]}, InputError, r"bias int\d+ \(3,\), .*: must be integers, one per channel or one for all"),
    ({"exponent": [0.5, 1.0]}, InputError, "exponent float64"),
    ({"high": [5, -128]}, InputError, "parameters of channel 0: low must not be above high"),
    ({"exponent": [0, 32]}, EncodingError, r"^PAR\.exponent = 32: outside -32\.\.31 \(6 bits\)$"),
    ({"multiplier": [0, 1 << 31]}, EncodingError, r"^PAR\.multiplier = 2147483648: outside 0\.\.2147483647"),
    ({"zero_point": 128}, EncodingError, r"^PAR\.zero_point = 128: outside -128\.\.127"),
])  # fmt: skip
def test_parameters_that_cannot_be_are_named(change, error, text):
    with pytest.raises(error, match=text):
        layout.pack_par(CFG, **{**PAR, "low": [6, -128], **change})


@pytest.mark.parametrize("count", [2, 3, 4])
def test_integers_are_joined_from_their_byte_planes(count):
    most = 1 << 8 * count - 1
    x = RNG.integers(-most, most, (3, 7), np.int64)
    planes = [(x >> 8 * k).astype(np.int8) for k in range(count)]
    found = layout.joined_planes(np.stack(planes))
    assert np.array_equal(found, x) and found.dtype == (np.int16 if count == 2 else np.int32)
    if count == 4:
        assert np.array_equal(layout.planes_to_int32(planes), x)


def test_weights_of_4_bits_are_scales_then_values():
    """Nibble by nibble: the scales of the 8 rows, then 4 weights of each; of several scales the smallest."""
    scales, values = RNG.integers(1, 16, (3, 8)), RNG.integers(-8, 8, (3, 8, 4))
    values[0, 0], values[1, 2], scales[1, 2] = 0, (4, -4, 0, 2), 1
    data = layout.pack_four_bits((values * scales[..., None]).astype(np.int8), FOUR)
    assert (data.dtype, data.shape) == (np.uint8, (3, 20))
    for entry in range(3):
        number = int.from_bytes(data[entry].tobytes(), "little")
        nibbles = [number >> 4 * k & 15 for k in range(40)]
        for row in range(8):
            q = [(n + 8) % 16 - 8 for n in nibbles[8 + 4 * row :][:4]]
            assert [nibbles[row] * n for n in q] == (values[entry, row] * scales[entry, row]).tolist()
            assert 1 <= nibbles[row] <= scales[entry, row]
    np.testing.assert_array_equal(layout.unpack_four_bits(data, FOUR), values * scales[..., None])


def test_any_bytes_are_weights_of_4_bits():
    data = RNG.integers(0, 256, (50, 20), np.uint8)
    weights = layout.unpack_four_bits(data, FOUR)
    assert weights.dtype == np.int8 and weights.shape == (50, 8, 4)
    np.testing.assert_array_equal(layout.unpack_four_bits(layout.pack_four_bits(weights, FOUR), FOUR), weights)


def test_a_table_fills_the_first_words_of_its_entries():
    """Blocks of 4: entries of 12 words, 8 of which are values."""
    values = RNG.integers(-(1 << 31), 1 << 31, 256)
    packed = layout.pack_table(values, CFG)
    assert (packed.dtype, packed.shape) == (np.uint32, (32, 4, 3))
    entries = packed.reshape(32, 12)
    assert np.array_equal(entries[:, :8].reshape(-1).view(np.int32), values) and not entries[:, 8:].any()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: layout.fold_windows(IMAGE, **dict(FOLDED, offsets=[])), "number of offsets = 0: must be at least 1"),
        (lambda: layout.fold_windows(IMAGE, **dict(FOLDED, offsets=[4, -900])), "negative"),
        (lambda: layout.pack_activations(np.zeros((2, 3)), CFG), "expected 4 dimensions"),
        (lambda: layout.pack_activations(np.zeros((1, 1, 1, 1)), CFG, layout="CHWN"), "must be NCHW or NHWC"),
        (lambda: layout.pack_weights(np.zeros((1, 1, 1, 1)), CFG, layout="IOHW"), "must be OIHW or OHWI"),
        (
            lambda: layout.pack_ternary_weights(np.full((1, 1, 1, 2), 2), TWO),
            r"weight 2 at \(0, 0, 0, 0\): must be -1, 0",
        ),
        (lambda: layout.pack_ternary_weights(np.full((1, 1, 1, 1), 0.5), TWO), r"weight 0.5 at .*: must be -1, 0 or 1"),
        (lambda: layout.pack_ternary_weights(np.zeros((1, 1, 1, 1)), CFG), "need unit ternary, which custom lacks"),
        (lambda: layout.pack_ternary_weights(np.zeros((1, 1)), TWO), "expected 4 dimensions"),
        (lambda: layout.pack_four_bits(np.zeros((4, 8)), CFG), "need extension wgt4, which custom lacks; choose"),
        (lambda: layout.unpack_four_bits(np.zeros((1, 20), np.uint8), CFG), "need extension wgt4, which custom lacks"),
        (lambda: layout.unpack_four_bits(np.zeros((2, 21), np.uint8), FOUR), r"are \(2, 21\): must be \(..., 20\)"),
        (lambda: layout.pack_four_bits(np.zeros((8, 4)), FOUR), r"are float64 \(8, 4\): must be integers"),
        (lambda: layout.pack_four_bits(np.zeros((4, 8), int), FOUR), r"are int64 \(4, 8\): must be integers"),
        (
            lambda: layout.pack_four_bits(np.full((2, 8, 4), [15, -14, 0, 1]), FOUR),
            r"row \(0, 0\), from -14 to 15, is no scale from 1 to 15 times integers from -8 to 7; round it",
        ),
        (lambda: layout.pack_four_bits(np.full((8, 4), -121), FOUR), r"row \(0,\), from -121 to -121, is no scale"),
        (lambda: layout.pack_depthwise_weights(np.zeros((1, 1, 1)), CFG), "custom has 8 and 4"),
        (lambda: layout.pack_depthwise_weights(np.zeros((1, 1, 1)), PRESETS["tiny"], layout="WHC"), "CHW or HWC"),
        (lambda: layout.pack_par(CFG, **PAR), "one per channel or one for all"),
        (lambda: layout.pack_table(np.zeros(255, int), CFG), r"a table is int64 \(255,\): must be 256 integers"),
        (lambda: layout.pack_table(np.zeros(256), CFG), r"a table is float64 \(256,\): must be 256 integers"),
        (lambda: layout.pack_table(np.full(256, 1 << 31), CFG), "from 2147483648 to 2147483648: must be within int32"),
        (lambda: layout.planes_to_int32([np.zeros(1, np.int8)]), "1 byte planes"),
        (lambda: layout.joined_planes(np.zeros((1, 2), np.int8)), "1 byte planes: must be 2 to 4"),
    ],
)
def test_mistakes_are_named(call, text):
    with pytest.raises(InputError, match=text):
        call()
