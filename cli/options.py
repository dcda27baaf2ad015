"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable

import click

DEFAULT_CONFIG = "pynq_z1"

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
device_option = click.option(
    "--on", "device", default="model", show_default=True, metavar="DEVICE", help="What executes the program."
)


def config_option(default: str | None = DEFAULT_CONFIG, help_text: str = "") -> Callable:
    """`--config`; None as `default` lets the verb decide."""
    text = help_text or "Preset, VTA configuration string, or JSON file of configuration fields."
    return click.option("--config", default=default, show_default=default is not None, metavar="NAME|FILE", help=text)
