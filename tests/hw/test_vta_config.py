"""hw/vta_config.py and hw/show.py: VTA's descriptions of an accelerator; configurations as text and HTML."""

import json
import re

import pytest

from tilewright.hw.config import PRESETS, Config, load_config
from tilewright.hw.errors import ConfigError
from tilewright.hw.show import config_html, size, table
from tilewright.hw.vta_config import is_vta, json_fields, string_fields

DEFAULT = {
    "TARGET": "sim",
    "HW_VER": "0.0.2",
    "LOG_INP_WIDTH": 3,
    "LOG_WGT_WIDTH": 3,
    "LOG_ACC_WIDTH": 5,
    "LOG_BATCH": 0,
    "LOG_BLOCK": 4,
    "LOG_UOP_BUFF_SIZE": 15,
    "LOG_INP_BUFF_SIZE": 15,
    "LOG_WGT_BUFF_SIZE": 18,
    "LOG_ACC_BUFF_SIZE": 17,
}


def changed(**changes):
    return {key: value for key, value in (DEFAULT | changes).items() if value is not None}


@pytest.mark.parametrize(
    "changes, text",
    [
        ({}, "1x16_i8w8a32_15_15_18_17"),
        ({"LOG_BATCH": 1, "LOG_BLOCK": 3, "LOG_WGT_WIDTH": 2}, "2x8_i8w4a32_15_15_18_17"),
        ({"LOG_INP_WIDTH": 2}, "1x16_i4w8a32_15_15_18_17"),
        ({"LOG_UOP_BUFF_SIZE": 12, "LOG_ACC_BUFF_SIZE": 15}, "1x16_i8w8a32_12_15_18_15"),
        ({"LOG_BLOCK": None, "LOG_BLOCK_IN": 4, "LOG_BLOCK_OUT": 4}, "1x16_i8w8a32_15_15_18_17"),
        ({"TARGET": "pynq", "HW_VER": None, "GEMM_II": 1, "TALU_II": 2}, "1x16_i8w8a32_15_15_18_17"),
    ],
)
def test_the_file_means_what_the_string_means(changes, text):
    assert json_fields(changed(**changes)) | {"name": text} == string_fields(text)


def test_older_files_name_both_blocks_and_the_width_of_outputs():
    found = json_fields(changed(LOG_BLOCK=None, LOG_BLOCK_IN=3, LOG_BLOCK_OUT=5, LOG_OUT_WIDTH=2))
    assert (found["block_in"], found["block_out"], found["out_bits"], found["extensions"]) == (8, 32, 4, [])


def test_a_file_of_vta_is_known_by_its_keys():
    assert is_vta(DEFAULT) and is_vta({"TARGET": "sim"}) and is_vta({"LOG_ANYTHING": 1})
    assert not is_vta(Config().to_dict()) and not is_vta({})


MISTAKES = [
    ({"LOG_BLOK": 4}, "a VTA configuration has no key LOG_BLOK; its keys are LOG_INP_WIDTH, "),
    ({"name": "mine"}, "a VTA configuration has no key name; its keys are LOG_INP_WIDTH, "),
    ({"LOG_BATCH": None, "LOG_BLOCK": None}, "a VTA configuration needs LOG_BATCH, LOG_BLOCK; "),
    ({"LOG_BLOCK": None, "LOG_BLOCK_IN": 4}, "a VTA configuration needs LOG_BLOCK_OUT; "),
    ({"LOG_BLOCK_IN": 4}, "a VTA configuration states LOG_BLOCK, or LOG_BLOCK_IN and LOG_BLOCK_OUT; remove one "),
    ({"LOG_BATCH": 1.5}, "LOG_BATCH = 1.5: must be the log2 of a number, from 0 to 30"),
    ({"LOG_BATCH": -1}, "LOG_BATCH = -1: must be the log2 of a number, from 0 to 30"),
    ({"LOG_BATCH": True}, "LOG_BATCH = True: must be the log2 of a number, from 0 to 30"),
    ({"LOG_INP_BUFF_SIZE": 10**9}, "LOG_INP_BUFF_SIZE = 1000000000: must be the log2 of a number, from 0 to 30"),
]


@pytest.mark.parametrize("changes, text", MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_mistakes_are_named(changes, text):
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}") as found:
        json_fields(changed(**changes))
    assert len(str(found.value)) <= 300


def test_impossible_values_are_refused_as_anywhere():
    with pytest.raises(ConfigError, match="^Config.acc_bits = 16: must be 32$"):
        Config.from_dict(json_fields(changed(LOG_ACC_WIDTH=4)))


@pytest.mark.parametrize("text", ["", "1x16", "x" * 4000, "1x16_i8w8a32_15_15_18_17_"])
def test_what_is_no_string_of_vta_is_refused(text):
    with pytest.raises(ConfigError, match="is not a VTA configuration; expected BATCHxBLOCK") as found:
        string_fields(text)
    assert len(str(found.value)) <= 300


def test_load_config_takes_vtas_own_file(tmp_path):
    path = tmp_path / "vta_config.json"
    path.write_text(json.dumps(DEFAULT))
    cfg = load_config(str(path))
    assert cfg == PRESETS["vta"].replace(name="vta_config") and cfg.fingerprint == PRESETS["vta"].fingerprint
    assert load_config(DEFAULT) == PRESETS["vta"].replace(name="custom")
    path.write_text(json.dumps(DEFAULT | {"LOG_BLOCK": 3}))
    with pytest.raises(
        ConfigError, match=r"^Config\.acc_bytes, inp_bytes, wgt_bytes: depths 4096, 4096, 4096 need 36 "
    ):
        load_config(str(path))  # a size that is stated is not made to fit


def test_a_configuration_names_its_shape_its_widths_its_sizes_and_what_is_not_usual():
    assert repr(PRESETS["vta"]) == "Config('vta', 1x16x16, int8, uop 32K inp 32K wgt 256K acc 128K, extensions=acc8)"
    cfg = Config("odd", inp_bits=4, inp_bytes=512, queue_depth=8)
    assert repr(cfg) == "Config('odd', 1x16x16, i4w8o8, uop 32K inp 512 wgt 256K acc 128K, queue_depth=8)"


@pytest.mark.parametrize(
    "change", [{"axi_bits": 128}, {"acc_banks": 1}, {"dsp_packing": True}, {"block_in": 8, "extensions": []}]
)
def test_configurations_that_differ_look_different(change):
    assert repr(PRESETS["tiny"].replace(**change)) != repr(PRESETS["tiny"])


def test_the_table_of_a_configuration_has_every_field_and_the_fingerprint():
    text = PRESETS["tiny"]._repr_html_()
    assert text == config_html(PRESETS["tiny"])
    assert f"{PRESETS['tiny'].fingerprint:016x}" in text and "<td>wgt_bytes</td><td>2,048</td>" in text
    assert len(re.findall("<tr>", text)) == 1 + len(Config.__dataclass_fields__)
    assert "<td>dsp_packing</td><td>False</td>" in text and "<td>extensions</td><td>none</td>" in config_html(Config())


def test_cells_are_escaped_and_integers_separated():
    text = table("a < b", ("x & y",), [("<script>",), (1234567,)])
    assert text == (
        "<p>a &lt; b</p><table><thead><tr><th>x &amp; y</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;</td></tr><tr><td>1,234,567</td></tr></tbody></table>"
    )


def test_sizes_take_the_largest_unit_that_divides_them():
    assert [size(n) for n in (64, 1 << 10, 3 << 10, 1 << 20, 5 << 19)] == ["64", "1K", "3K", "1M", "2560K"]
