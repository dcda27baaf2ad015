"""`tilewright operators`: the operators that are read of each format of files."""

from __future__ import annotations

import click

from ..hw.errors import InputError
from . import report
from .options import json_option

FORMATS = {"tflite": ".tflite", "onnx": ".onnx", "deeploy": ".onnx in Deeploy's dialect"}


def operators_of(kind: str) -> list[str]:
    """The operators that are read of a format of `FORMATS`, in alphabetical order."""
    if kind == "tflite":
        from ..compiler.frontend.tflite.importer import OPERATORS as found
    elif kind == "onnx":
        from ..compiler.frontend.onnx import OPERATORS as found
    else:
        from ..compiler.frontend.onnx.deeploy_operators import OPERATORS

        found = [*OPERATORS, "Constant"]
    return sorted(found)


def by_operator(kinds: list[str]) -> dict[str, list[str]]:
    """The formats of `kinds` that each operator is read of, by operator."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        for name in operators_of(kind):
            found.setdefault(name, []).append(kind)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


@click.command()
@click.argument("name", required=False)
@click.option("--format", "kind", type=click.Choice([*FORMATS]), help="Of this format alone.  [all]")
@json_option
def command(name: str | None, kind: str | None, as_json: bool) -> None:
    """List the operators that are read of networks' files; with NAME those with NAME in their own.

    That an operator is read does not say where it runs: `tilewright assign NET` does.
    """
    found = by_operator([kind] if kind else [*FORMATS])
    if name is not None:
        found = {one: kinds for one, kinds in found.items() if name.lower() in one.lower()}
        if not found:
            where = f" of {FORMATS[kind]} files" if kind else ""
            raise InputError(f"no operator{where} has {name!r} in its name; `tilewright operators` lists all")
    if as_json:
        report.emit_json({"operators": [{"name": one, "formats": kinds} for one, kinds in found.items()]})
        return
    report.table(["operator", "formats"], [[one, ", ".join(kinds)] for one, kinds in found.items()])
    report.say(f"{report.counted(len(found), 'operator')}; where each runs: tilewright assign NET")
