"""cli/options.py: options that several verbs share."""

import click
import pytest

from tilewright.cli.options import DEFAULT_CONFIG, config_option, device_option, json_option
from tilewright.hw.config import PRESETS


def parsed(option, *arguments):
    command = click.command()(option(lambda **values: values))
    return command.main(list(arguments), standalone_mode=False)


def test_defaults():
    assert DEFAULT_CONFIG in PRESETS
    assert parsed(config_option()) == {"config": DEFAULT_CONFIG}
    assert parsed(config_option(None)) == {"config": None}
    assert parsed(device_option) == {"device": "model"}
    assert parsed(json_option) == {"as_json": False}


@pytest.mark.parametrize(
    "option, arguments, expected",
    [
        (config_option(), ["--config", "tiny"], {"config": "tiny"}),
        (device_option, ["--on", "board"], {"device": "board"}),
        (json_option, ["--json"], {"as_json": True}),
    ],
)
def test_values(option, arguments, expected):
    assert parsed(option, *arguments) == expected


def test_help_names_the_default_where_there_is_one():
    def text(option):
        return click.command()(option(lambda **values: None)).get_help(click.Context(click.Command("x")))

    assert f"[default: {DEFAULT_CONFIG}]" in text(config_option())
    shown = text(config_option(None, "As for compile."))
    assert "As for compile." in shown and "default" not in shown
