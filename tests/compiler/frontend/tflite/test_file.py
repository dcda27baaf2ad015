"""Damaged .tflite files: a named error, whatever the damage."""

import random

import pytest

from tilewright.compiler.frontend.tflite.file import read
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import FileError, InputError, UnsupportedError


@pytest.fixture
def model(tflite):
    m = tflite()
    x = m.input((1, 6, 5, 3))
    m.output(m.op("CONV_2D", [x, *m.weights((4, 3, 3, 3))], (1, 6, 5, 4), strideH=1, strideW=1))
    return m


def test_what_a_file_says(model):
    file = read(model.save())
    assert [(n.kind, n.name, n.tensor, n.inputs, n.outputs) for n in file.nodes] == [
        ("CONV_2D", "conv_2d_0", "t3", (0, 1, 2), (3,))
    ]
    assert (file.inputs, file.outputs) == ((0,), (3,))
    weights = file.tensors[1]
    assert weights.data is not None and weights.data.shape == (4, 3, 3, 3) and weights.scale.shape == (4,)
    assert file.nodes[0].option("strideH", 0) == 1 and file.nodes[0].option("unknown", 7) == 7


def test_files_of_other_kinds(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "absent.tflite")
    with pytest.raises(FileError, match="is a folder"):
        read(tmp_path)
    for content in (b"", b"not a model at all", bytes(1000)):
        (tmp_path / "other.tflite").write_bytes(content)
        with pytest.raises(FileError, match=r"other\.tflite: not a \.tflite model: bytes 4 to 7 are"):
            read(tmp_path / "other.tflite")


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files(model, share):
    path = model.save()
    data = path.read_bytes()
    path.write_bytes(data[: max(8, int(len(data) * share))])
    with pytest.raises(FileError, match=r"model\.tflite: a truncated or damaged \.tflite model") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_bytes_changed_at_random(model, seed):
    """Some changes are harmless; the others must be named errors."""
    rng, path = random.Random(seed), model.save()
    original = path.read_bytes()
    for _ in range(20):
        data = bytearray(original)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            import_tflite(path)
        except (FileError, UnsupportedError, InputError) as exc:
            assert str(path) in str(exc) and "\n" not in str(exc)


def test_references_that_lead_nowhere(model):
    model.graph.operators[0].inputs[0] = 99
    with pytest.raises(FileError, match=r"operator 0 \(CONV_2D\) names tensors that the file does not have"):
        read(model.save())
    model.graph.operators[0].inputs[0] = 0
    model.graph.outputs = [99]
    with pytest.raises(FileError, match="inputs or outputs are tensors that the file does not have"):
        read(model.save())


def test_a_constant_of_another_size(model):
    model.model.buffers[1].data = model.model.buffers[1].data[:-1]
    with pytest.raises(FileError, match=r"constant 't1' has 107 bytes; INT8 of shape \(4, 3, 3, 3\) takes 108"):
        read(model.save())


def test_names_are_printable(model):
    model.graph.tensors[0].name, model.graph.tensors[3].name = "image\n\x00", "ünï"
    names = [t.name for t in read(model.save()).tensors]
    assert (names[0], names[3]) == ("image??", "ünï")
