"""hw/checks.py: what is refused names the nearest legal value; tests/hw/test_config.py has the texts of each field."""

import re
from typing import Any

import pytest

from tilewright.hw import checks
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import ConfigError
from tilewright.hw.fields import parameters


@pytest.mark.parametrize(
    "value, nearest",
    [
        (12, "are 8 and 16"),
        (20, "are 16 and 32"),
        (255, "are 128 and 256"),
        (300, "is 256"),
        (10**30, "is 256"),
        (-1, "is 1"),
        (16.5, "are 16 and 32"),
        ("16", "is 16"),
        (float("inf"), "is 256"),
    ],
)
def test_the_nearest_powers_of_two(value, nearest):
    with pytest.raises(ConfigError, match=f"; nearest {nearest}$"):
        Config.from_dict({"block_in": value})


@pytest.mark.parametrize("value", [float("nan"), True, [16], "sixteen", None])
def test_what_is_no_number_has_none_near(value):
    with pytest.raises(ConfigError, match="must be an integer$"):
        Config.from_dict({"block_in": value})


def test_the_nearest_value_is_legal_for_every_number():
    for name, parameter in parameters(Config).items():
        if not parameter.high:
            continue
        for value in (parameter.high + 1, parameter.low - 1):
            with pytest.raises(ConfigError) as found:
                Config.from_dict({name: value})
            (number,) = re.findall(r"(?:nearest is|must be) (\d+)$", str(found.value))
            assert parameter.low <= int(number) <= parameter.high


def test_texts_stay_short_whatever_the_value():
    long = "x" * 5000
    for values in ({"name": f"{long}\n"}, {"block_in": long}, {long: 1}, {"extensions": [long]}, {"batch": [1] * 999}):
        with pytest.raises(ConfigError) as found:
            Config.from_dict(values)
        assert len(str(found.value)) <= 300


def test_unknown_names_show_those_that_are_alike():
    with pytest.raises(ConfigError, match="^Config has no field 'acc_bites'; it has acc_bits, acc_bytes"):
        checks.check_field_names({"acc_bites": 1}, parameters(Config))
    with pytest.raises(ConfigError, match="^Config has no field 'zzz'; `tilewright config --help` lists the fields$"):
        checks.check_field_names({"zzz": 1}, parameters(Config))
    with pytest.raises(ConfigError, match="nearest to depth_wise is depthwise$"):
        checks.check_extension_names(["depth_wise"], PRESETS["tiny"].extensions)
    with pytest.raises(ConfigError, match="known are acc8$"):
        checks.check_extension_names(["zzz"], ["acc8"])


def test_units_are_a_list_of_names():
    assert checks.check_units(["gemm"]) == ("gemm",)
    anything: Any = 3
    with pytest.raises(ConfigError, match="^Config.units = 3: must be a list of names; e.g. gemm$"):
        checks.check_units(anything)


def test_ranges_and_formats_of_the_presets_hold():
    for cfg in PRESETS.values():
        for check in (checks.check_ranges, checks.check_entries, checks.check_extensions, checks.check_sizes):
            check(cfg)
