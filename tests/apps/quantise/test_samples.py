"""apps/quantise/samples.py: data of every usual shape, type and file becomes the inputs of a network."""

import numpy as np
import pytest
from PIL import Image

from tilewright.apps.quantise.samples import Input, Pictures, check_data, read_samples, samples_of
from tilewright.cli.run import write_npz
from tilewright.hw.errors import FileError, InputError

F4 = np.dtype(np.float32)
NCHW, NHWC, GRAY = (1, 3, 4, 6), (1, 4, 6, 3), (1, 1, 4, 6)


def numbered(shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def identity(array):
    return array


@pytest.mark.parametrize(
    ("wanted", "given", "to_samples", "single", "note"),
    [
        (NCHW, NCHW, lambda a: a[None], True, ""),
        (NCHW, (5, *NCHW), identity, False, ""),
        (NCHW, (5, 3, 4, 6), lambda a: a[:, None], False, "5 samples, one a run"),
        (NCHW, (3, 4, 6), lambda a: a[None, None], True, "one sample"),
        ((None, 3, 4, 6), (5, 3, 4, 6), lambda a: a[:, None], False, "5 samples, one a run"),
        (NCHW, (5, 4, 6, 3), lambda a: a.transpose(0, 3, 1, 2)[:, None], False, "layout (H, W, C), whose channels are"),
        (NCHW, (4, 6, 3), lambda a: a.transpose(2, 0, 1)[None, None], True, "layout (H, W, C)"),
        (NHWC, (5, 3, 4, 6), lambda a: a.transpose(0, 2, 3, 1)[:, None], False, "layout (C, H, W)"),
        ((1, 3, None, None), (5, 9, 8, 3), lambda a: a.transpose(0, 3, 1, 2)[:, None], False, "layout (H, W, C)"),
        (GRAY, (5, 4, 6), lambda a: a[:, None, None], False, "without an axis of channels"),
        (GRAY, (4, 6), lambda a: a[None, None, None], True, "without an axis of channels"),
        ((1, 4, 6, 1), (5, 4, 6), lambda a: a[:, None, ..., None], False, "without an axis of channels"),
        ((1, 3, 3, 3), (5, 3, 3, 3), lambda a: a[:, None], False, "5 samples, one a run"),  # as the network has them
        ((4,), (4,), lambda a: a[None], True, ""),
        ((4,), (5, 4), identity, False, ""),
        ((), (5,), identity, False, ""),
        ((2, 8), (5, 2, 8), identity, False, ""),
    ],
)
def test_arrays_of_usual_shapes(wanted, given, to_samples, single, note):
    array = numbered(given)
    samples = samples_of({"x": array}, [Input("x", wanted, F4)], "x.npz")
    np.testing.assert_array_equal(np.stack([sample["x"] for sample in samples]), to_samples(array))
    assert samples.single is single and note in "".join(samples.notes) and bool(note) == bool(samples.notes)


@pytest.mark.parametrize(
    ("shape", "given", "text"),
    [
        (NCHW, (5, 3, 4, 7), "(5, 3, 4, 7); give (1, 3, 4, 6), (N, 1, 3, 4, 6) or (N, 3, 4, 6)"),
        ((None, 2), (5, 3), "(5, 3); give (any, 2), (N, any, 2) or (N, 2)"),
        ((2, 8), (5, 8), "(5, 8); give (2, 8) or (N, 2, 8)"),
        ((4,), (), "(); give (4,) or (N, 4)"),
        (NCHW, (0, 3, 4, 6), "holds no sample: 'x' has length 0; give at least one"),
    ],
)
def test_shapes_that_would_do(shape, given, text):
    with pytest.raises(InputError) as caught:
        samples_of({"x": np.zeros(given, np.float32)}, [Input("x", shape, F4)], "x.npz")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "values", "wanted", "text"),
    [
        ("f8", [0.1, 2.0], "f4", "float64 values are rounded to float32"),
        ("i8", [1, 255], "f4", ""),
        ("i4", [-128, 127], "i1", ""),
        ("f8", [-1.0, 5.0], "i1", "float64 values are whole numbers, taken as int8"),
        ("?", [True, False], "f4", ""),
    ],
)
def test_numbers_of_another_type_are_taken_where_they_stay(dtype, values, wanted, text):
    samples = samples_of({"x": np.array(values, dtype)}, [Input("x", (2,), np.dtype(wanted))], "x.npz")
    assert samples[0]["x"].dtype == wanted and np.allclose(samples[0]["x"], values)
    assert "".join(samples.notes).endswith(text) and len(samples.notes) == bool(text)


@pytest.mark.parametrize(
    ("dtype", "values", "wanted", "text"),
    [
        ("f8", [1e300], "f4", "of which float32 has not all"),
        ("i8", [(1 << 40) + 1], "f4", "of which float32 has not all"),
        ("f4", [0.5], "i1", "the network takes int8: give whole numbers from -128 to 127"),
        ("f4", [np.nan], "i1", "give whole numbers from -128 to 127"),
        ("i4", [200], "i1", "numbers from -128 to 127, or for a file of Deeploy's --input-type x=uint8"),
        ("i4", [-200], "i1", "numbers from -128 to 127, or for a file of Deeploy's --input-type x=int32"),
        ("i4", [2], "?", "give 0 or 1"),
        ("u1", [200], "f4", "holds pixels (uint8) and the network takes float32; say how they are scaled with --mean"),
        ("U1", ["a"], "f4", "has type <U1; give numbers"),
    ],
)
def test_numbers_that_would_change_are_refused(dtype, values, wanted, text):
    with pytest.raises(InputError) as caught:
        samples_of({"x": np.array(values, dtype)}, [Input("x", (1,), np.dtype(wanted))], "x.npz")
    assert text in str(caught.value)


@pytest.mark.parametrize(("given", "wanted"), [("f4", "f4"), ("i8", "f4"), ("u1", "u1")])
def test_scales_of_pixels_are_for_pixels_alone(given, wanted):
    with pytest.raises(InputError, match=f"are for pixels .uint8. of a float input, .* 'x' {np.dtype(given)}; drop"):
        samples_of({"x": np.ones(2, given)}, [Input("x", (2,), np.dtype(wanted))], "x.npz", Pictures((0.5,)))


def test_names_of_arrays():
    one, two = [Input("x", (1, 2), F4)], [Input("x", (1, 2), F4), Input("y", (3,), F4)]
    x, y = np.ones((4, 2), np.float32), np.ones((4, 3), np.float32)
    for name in ("x", "inputs", "input_0", "arr_0", "anything"):
        assert samples_of({name: x, "labels": np.arange(4), "outputs": y}, one, "x.npz").count == 4
    assert [*samples_of({"input_1": y, "input_0": x}, two, "x.npz")[3]] == ["x", "y"]
    for arrays, text in (
        ({"a": x, "b": x}, "holds `a`, `b`, and lacks `x`; give the array of the input this name, or `inputs`"),
        ({}, "holds nothing, and lacks `x`"),
        ({"image": y}, "holds `image`, and lacks `x`"),
    ):
        with pytest.raises(InputError, match=text):
            samples_of(arrays, one, "x.npz")
    for held in (("arr_0", "arr_1"), ("_0", "_1"), ("b", "c")):
        assert [*samples_of(dict(zip(held, (x, y))), two, "x.npz")[3]] == ["x", "y"]
    for arrays in ({"x": x}, {"z": x, "y": y}, {"b": y, "c": x}, {"b": x, "c": y, "d": y}, {"labels": x, "d": y}):
        with pytest.raises(InputError, match="and lacks .*`; give the arrays of inputs their names"):
            samples_of(arrays, two, "x.npz", outputs=["z"])
    with pytest.raises(InputError, match="different numbers of samples: 4 of 'x', 1 of 'y'; give as many"):
        samples_of({"x": x, "y": y[0]}, two, "x.npz")


def test_the_names_of_a_file_choose_the_entry(tmp_path):
    entries = [[Input(name, (1,), F4) for name in names] for names in ("px", "qx")]

    def names(*held):
        write_npz(str(tmp_path / "x.npz"), {name: np.ones(1, np.float32) for name in held})
        return "".join(read_samples(str(tmp_path / "x.npz"), entries)[0])

    assert [names(*held) for held in ("px", "qx", ("input_0", "input_1"))] == ["px", "qx", "px"]
    for held in ("pqx", "x", ""):
        with pytest.raises(InputError, match="x.npz: holds .*; the inputs are `p`, `x`; or `q`, `x`: give the arrays"):
            names(*held)


@pytest.fixture
def pictures(tmp_path):
    """(a folder with three pictures of 4 x 6 pixels, their pixels)."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), dtype=np.uint8)
    for k, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{k}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    return tmp_path, pixels


@pytest.mark.parametrize("shape", [NCHW, NHWC])
def test_pictures(pictures, shape):
    folder, pixels = pictures
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    samples = read_samples(str(folder), [[Input("x", shape, F4)]], Pictures(mean, std))
    expected = (pixels / 255 - np.array(mean)) / np.array(std)
    expected = expected.transpose(0, 3, 1, 2) if shape == NCHW else expected
    np.testing.assert_allclose(np.concatenate([sample["x"] for sample in samples]), expected, rtol=1e-5, atol=1e-6)
    assert samples.notes[1] == "pixels are read as (pixel / 255 - 0.4, 0.5, 0.6) / 0.2, 0.3, 0.4"
    arrays = samples_of({"x": pixels}, [Input("x", shape, F4)], "x.npz", Pictures(mean, std))
    np.testing.assert_allclose(arrays[1]["x"], samples[1]["x"], rtol=1e-6, atol=1e-7)
    one = read_samples(str(folder / "2.png"), [[Input("x", shape, np.dtype(np.uint8))]])
    np.testing.assert_array_equal(one[0]["x"][0], pixels[2].transpose(2, 0, 1) if shape == NCHW else pixels[2])
    assert one.single and not samples.single


def test_pictures_of_another_size_are_refused_or_resized(pictures):
    folder, _ = pictures
    wanted = [Input("x", (1, 3, 8, 8), F4)]
    with pytest.raises(InputError, match=r"0.png: is 6 x 4 pixels, the network takes 8 x 8; add --resize"):
        read_samples(str(folder), [wanted])[0]
    assert read_samples(str(folder), [wanted], Pictures(resize=True))[0]["x"].shape == (1, 3, 8, 8)
    assert read_samples(str(folder), [[Input("x", (1, 3, None, None), F4)]])[0]["x"].shape == (1, 3, 4, 6)


def test_what_is_no_data_is_named(pictures, tmp_path):
    folder, _ = pictures
    (folder / "0.png").write_bytes((folder / "0.png").read_bytes()[:60])
    with pytest.raises(FileError, match=r"0.png: not a picture, or damaged"):
        read_samples(str(folder), [[Input("x", NCHW, F4)]])[0]
    with pytest.raises(InputError, match=r"pictures are for a network with one input of shape \(1, C, H, W\)"):
        read_samples(str(folder), [[Input("x", (1, 10), F4)]])
    with pytest.raises(InputError, match="1.png: input 'x' has uint8 values .* the network takes int8"):
        read_samples(str(folder), [[Input("x", NCHW, np.dtype(np.int8))]])[1]
    with pytest.raises(InputError, match="--mean: 2 numbers; input 'x' has 3 channels"):
        read_samples(str(folder), [[Input("x", NCHW, F4)]], Pictures((0.1, 0.2)))[1]
    with pytest.raises(InputError, match="the network takes pixels as uint8; drop --mean and --std"):
        read_samples(str(folder), [[Input("x", NCHW, np.dtype(np.uint8))]], Pictures((0.1,)))
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "none").mkdir()
    (tmp_path / "net.gguf").write_bytes(b"GGUF" + bytes(60))
    for name, text in {"cut.npy": "not a .npy file", "none": "holds no pictures", "net.gguf": "is a GGUF file"}.items():
        with pytest.raises(FileError, match=text):
            check_data(str(tmp_path / name))
