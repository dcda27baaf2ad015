"""Texts and tables: what tells two configurations apart, and cells as HTML needs them."""

import re

import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.show import config_html, size, table


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
