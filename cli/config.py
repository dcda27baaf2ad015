"""`tilewright config`: shows a configuration, compares two, and says what accepts one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..boards.synthesis import least
from ..boards.zynq.board import Board, check_board
from ..compiler.limits import activations_refused, runs_whole_networks
from ..hw.circuit import check_buildable
from ..hw.config import Config, load_config
from ..hw.errors import TilewrightError, UnsupportedError
from ..hw.fields import parameters
from ..sim.dram import ZYNQ_HP
from ..sim.timing import check_memory
from . import report
from .options import board_option, chosen_board, json_option

DEFAULT = "show"
CONFIG_HELP = "NAME|FILE is a preset, a VTA string, or a JSON file of fields, VTA's vta_config.json included."
LAYERWISE = (
    "layer by layer; one launch needs 8-bit weights, block_out a multiple of block_in, requant, acc8, pad_value, "
    "rescale"
)
# what follows from the fields
DERIVED = [f"{mem}_depth" for mem in ("uop", "inp", "wgt", "acc")]
DERIVED += [f"{mem}_entry_bytes" for mem in ("inp", "wgt", "acc", "out", "par")]
DERIVED += ["bank_depth", "lanes", "macs_per_cycle"]


class _Group(click.Group):
    """A group whose first word may be a configuration: then `DEFAULT` is meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            if args[1:] and not any(word.startswith("-") for word in args[:2]):
                raise click.UsageError(f"{args[0]!r} before {args[1]!r} must be diff or check", ctx)
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [item for item in super().shell_complete(ctx, incomplete) if item.value != DEFAULT]
        default = self.commands[DEFAULT]
        return found + default.params[0].shell_complete(click.Context(default, parent=ctx), incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Forms"):
            formatter.write_dl([(usage(name, cmd), cmd.get_short_help_str(100)) for name, cmd in self.commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Fields"):
            formatter.write_dl([(name, f"{p.meaning}; {p.legal}") for name, p in parameters(Config).items()])


def usage(name: str, form: click.Command) -> str:
    """The command line of the form `name`, e.g. "config diff A B"."""
    words = [p.make_metavar(click.Context(form)) for p in form.params if isinstance(p, click.Argument)]
    return " ".join(["config", *([] if name == DEFAULT else [name]), *words])


@click.command(cls=_Group, subcommand_metavar="[diff|check] NAME|FILE ... [--json]")
def command() -> None:
    """Show a configuration, compare two, or check one.

    `tilewright config pynq_z1 > my.json` writes a file to change and to give to --config.
    """


@command.command(DEFAULT, help=f"Print every field as JSON. {CONFIG_HELP}")
@click.argument("config", metavar="NAME|FILE")
@json_option
def show(config: str, as_json: bool) -> None:
    """Print the fields, with --json or without."""
    report.emit_json(load_config(config).every_field())


@command.command(help=f"Print where two configurations differ, and if programs of one run on the other. {CONFIG_HELP}")
@click.argument("config", metavar="A")
@click.argument("other", metavar="B")
@json_option
def diff(config: str, other: str, as_json: bool) -> None:
    """Print fields and derived sizes that differ."""
    a, b = load_config(config), load_config(other)
    declared = parameters(type(a))
    fields = _differing(a.every_field(), b.every_field())
    derived = _differing(derived_sizes(a), derived_sizes(b))
    same = a.fingerprint == b.fingerprint
    if as_json:
        names = {"a": a.name, "b": b.name, "fields": fields, "derived": derived}
        report.emit_json(names | {"fingerprints": [_print_of(a), _print_of(b)], "interchangeable": same})
        return
    rows = [[name, *map(_cell, pair), not declared[name].part.circuit] for name, pair in fields.items()]
    rows += [[name, *pair, ""] for name, pair in derived.items()]
    if rows:
        report.table(["field", a.name, b.name, "programs depend on it"], rows)
    report.say(_interchange(a, b, same))


def _interchange(a: Config, b: Config, same: bool) -> str:
    if not same:
        return f"programs of one do not run on the other: fingerprints {_print_of(a)} and {_print_of(b)}"
    text = f"programs of one run on the other: both have fingerprint {_print_of(a)}"
    if (a.queue_depth, a.token_depth) != (b.queue_depth, b.token_depth):
        text += "; the loader proves them again for shallower queues and channels"
    return text


def _differing(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list]:
    return {name: [a[name], b[name]] for name in a if a[name] != b[name]}


def _cell(value: object) -> object:
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else value


def derived_sizes(cfg: Config) -> dict[str, int]:
    """Values derived from the fields: depths, bytes of entries, lanes, multiply-accumulates."""
    return {name: getattr(cfg, name) for name in DERIVED}


@command.command(help=f"Print what accepts a configuration, its derived sizes and its fingerprint. {CONFIG_HELP}")
@click.argument("config", metavar="NAME|FILE")
@board_option("The board [pynq_z1]:")
@json_option
def check(config: str, board: str | None, as_json: bool) -> None:
    """Load, which refuses what no accelerator can have; then ask everything that accepts less."""
    cfg, chosen = load_config(config), chosen_board(board)
    accepted = accepts(cfg, chosen)
    needs, has = dataclasses.asdict(least(cfg)), chosen.available
    if as_json:
        facts: dict[str, Any] = {"config": cfg.name, "fingerprint": _print_of(cfg), "derived": derived_sizes(cfg)}
        rows = {what: {"accepted": ok, "note": note} for what, (ok, note) in accepted.items()}
        at_least = {key: [needs[key], has[key]] for key in ("bram", "dsp")}
        report.emit_json(facts | {"users": rows, "part": chosen.device, "at_least": at_least})
        return
    report.table(["user", "accepts it", "note"], [[what, ok, note] for what, (ok, note) in accepted.items()])
    report.say()
    report.table(["size", "value"], list(derived_sizes(cfg).items()))
    report.say()
    report.table(
        ["resource", "at least", chosen.device],
        [
            ["block RAM of the buffers", f"{needs['bram']:g}", has["bram"]],
            ["DSP of GEMM", needs["dsp"], has["dsp"]],
        ],
    )
    report.say(
        f"{cfg.name}: legal, fingerprint {_print_of(cfg)}; `tilewright synth --config {config}` counts all resources"
    )


def accepts(cfg: Config, board: Board) -> dict[str, tuple[bool, str]]:
    """User of the legal configuration `cfg`, on `board` -> whether it accepts it, and the reason or a note."""
    refused = activations_refused(cfg)
    way = "as one launch" if runs_whole_networks(cfg) else LAYERWISE
    built = _asked(lambda: check_buildable(cfg))
    return {
        "programs, model, spec": (True, "every legal configuration"),
        "networks": (not refused, refused or way) if built[0] else built,
        "timing": _asked(lambda: check_memory(cfg, ZYNQ_HP)),
        "rtl, synth": built,
        f"board {board.title}": _asked(lambda: _check_fits(cfg, board)),
    }


def _check_fits(cfg: Config, board: Board) -> None:
    """Raise `UnsupportedError` if `cfg` cannot be on the board: its ports, then its block RAM and DSPs."""
    check_board(cfg, board)
    needs, has = least(cfg), board.available
    if needs.bram > has["bram"]:
        raise UnsupportedError(f"the buffers need {needs.bram:g} block RAMs of {has['bram']}; make one smaller")
    if needs.dsp > has["dsp"]:
        way = "dsp_packing" if not cfg.dsp_packing else "array_clock = 2" if cfg.array_clock < 2 else "smaller blocks"
        raise UnsupportedError(f"GEMM needs {needs.dsp} DSPs of {has['dsp']}; use {way}")


def _asked(check: Callable[[], object]) -> tuple[bool, str]:
    """Whether `check` accepts, and the first line of its refusal."""
    try:
        check()
    except TilewrightError as exc:
        return False, str(exc)
    return True, ""


def _print_of(cfg: Config) -> str:
    return f"{cfg.fingerprint:016x}"
