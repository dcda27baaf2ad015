"""compiler/mapping/file.py: files of mappings, and what is none."""

from typing import Any, cast

import pytest

from tilewright.compiler.mapping import ChannelMapping, read_mapping, write_mapping
from tilewright.hw.errors import FileError, InputError

MAPPING = ChannelMapping({"conv1": {"gemm": (0, 2), "ternary": (1, 3)}, "fc": {"gemm": (0,)}})


def test_a_file_has_a_line_for_each_layer_and_is_read_again(tmp_path):
    path = tmp_path / "mapping.json"
    write_mapping(MAPPING, path)
    assert path.read_text().splitlines() == [
        '{"version": 1, "layers": {',
        '  "conv1": {"gemm": [0, 2], "ternary": [1, 3]},',
        '  "fc": {"gemm": [0]}',
        "}}",
    ]
    assert read_mapping(path) == MAPPING == ChannelMapping.of(path) == ChannelMapping.of(MAPPING.to_dict())
    assert ChannelMapping.of(MAPPING) is MAPPING


def test_no_layers(tmp_path):
    write_mapping(ChannelMapping({}), tmp_path / "empty.json")
    assert (tmp_path / "empty.json").read_text() == '{"version": 1, "layers": {}}\n'
    assert read_mapping(tmp_path / "empty.json") == ChannelMapping({})


def test_digests_do_not_depend_on_the_order():
    turned = ChannelMapping({"fc": {"gemm": (0,)}, "conv1": {"ternary": (3, 1), "gemm": (2, 0)}})
    assert turned.digest == MAPPING.digest != ChannelMapping({"fc": {"gemm": (0,)}}).digest


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("no", FileError, "cannot be read as JSON"),
        ("[]", InputError, "must be an object with `version` and `layers`"),
        ('{"version": 2, "layers": {}}', InputError, "version is 2; this release reads version 1"),
        ('{"version": true, "layers": {}}', InputError, "version is True"),
        ('{"version": 1, "layers": {"a": [1]}}', InputError, "`layers` must give an object of units"),
        ('{"version": 1, "layers": {"a": {"gemm": [0.5]}}}', InputError, "layer 'a': channels of 'gemm' must be"),
        ('{"version": 1, "layers": {"a": {"gemm": [-1]}}}', InputError, "must be a list of whole numbers from 0 on"),
        ('{"version": 1, "layers": {"a": {"gemm": 1}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": [true]}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": ["0"]}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": [[0]]}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {"gemm": null}}}', InputError, "must be a list of whole numbers"),
        ('{"version": 1, "layers": {"a": {}, "a": {}}}', FileError, "key 'a' comes 2 times in one object"),
        ('{"version": 1, "layers": {"a": {"gemm": [0], "gemm": [1]}}}', FileError, "key 'gemm' comes 2 times"),
        ('{"version": 1, "layers": null}', InputError, "`layers` must give an object of units"),
        ('{"version": 1, "layers": {}, "more": 1}', InputError, "must be an object with `version` and `layers`"),
        ('{"version": "1", "layers": {}}', InputError, "version is '1'; this release reads version 1"),
        ('{"version": 1, "layers": {"' + "a" * 999 + '": {"gemm": 1}}}', InputError, "channels of 'gemm' must be"),
        ('{"version": [' + "1," * 999 + '1], "layers": {}}', InputError, "version is [1, 1"),
    ],
)
def test_other_files(tmp_path, text, error, said):
    path = tmp_path / "mapping.json"
    path.write_text(text)
    with pytest.raises(error) as caught:
        read_mapping(path)
    text = str(caught.value)
    assert said in text and text.startswith(str(path)) and "\n" not in text and len(text) <= 300 + len(str(path))


def test_values_of_python():
    for value, said in (
        (5, "mapping: must be an object"),
        (None, "mapping: must be an object"),
        ({"version": 1, "layers": {1: {"gemm": [0]}}}, "mapping: 1 is no name"),
        ({"version": 1, "layers": {"a": {None: [0]}}}, "layer 'a': None is no name"),
    ):
        with pytest.raises(InputError, match=said):
            ChannelMapping.of(cast(Any, value))
    assert ChannelMapping.of({"version": 1, "layers": {"a": {"gemm": range(2)}}}).layers == {"a": {"gemm": (0, 1)}}


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read_mapping(tmp_path / "none.json")
