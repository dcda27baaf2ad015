"""The command and its verbs. A verb's module is imported only when that verb runs.

Shells complete verbs, options and values. What a value may be follows from the metavar of its option or argument: names
come from the presets and the devices, files from the suffixes that the metavar names. Nothing but the verb's own module
is imported for it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..hw import errors
from ..hw.config import PRESETS as CONFIGS
from ..runtime.registry import device_names
from ..sim.dram import PRESETS as MEMORIES

# verb -> what it does, as the list of verbs shows it
VERBS = {
    "compile": "Compile a network or a schedule into a .tw program.",
    "run": "Run a program on a device with the inputs of a file.",
    "diff": "Compare networks in TFLite's interpreter, with the accelerator and without.",
    "generate": "Write a text with a language model.",
    "quantise": "Quantise a float network or a language model to int8.",
    "serve": "Serve a device or a board over the network.",
    "odimo": "Train a network for two compute units, and write its front.",
    "explore": "Try configurations on networks, and print the best.",
    "estimate": "Estimate area, clock and cycles without synthesis.",
    "tune": "Find faster tiles for a network or a schedule.",
    "replay": "Run recorded cases and compare all of memory.",
    "plan": "Plan the memory of a network's activations.",
    "assign": "Show which module runs each operator of a network.",
    "operators": "List the operators that are read of networks' files.",
    "explain": "Show what each statement or operator costs, and why.",
    "report": "Write a page about a program: operators, timeline, memory, limits.",
    "verify": "Prove a program free of deadlocks and races.",
    "disasm": "Print a program's instructions.",
    "bench": "Measure model or circuit on the layers of ResNet-18.",
    "config": "Show, compare or check configurations.",
    "rtl": "Write the circuit as Verilog.",
    "synth": "Count the FPGA resources of the core.",
    "bitstream": "Build the accelerator's bitstream for the PYNQ-Z1.",
    "doctor": "List what is installed and what needs it.",
}
_MODULES = {"report": "page"}  # of verbs whose module has another name: cli/report.py prints what verbs found


PIPE_STATUS = 141  # 128 + SIGPIPE, as shells have it


def exit_codes() -> list[tuple[int, str]]:
    """Exit statuses and their meanings, in order; an error's meaning is the docstring of its class."""
    codes = {0: "Success.", 2: "The command line is wrong.", 130: "Interrupted."}
    codes[PIPE_STATUS] = "The reader of the output closed it, as `head` does; no message is printed."
    codes[errors.TilewrightError.exit_code] = "Cases or comparisons failed, or any other error."
    for cls in errors.TilewrightError.__subclasses__():
        codes[cls.exit_code] = (inspect.getdoc(cls) or "").splitlines()[0]
    return sorted(codes.items())


def module_of(verb: str) -> str:
    """The name of the module, or the package, of `verb` in this folder."""
    return _MODULES.get(verb, verb)


@contextmanager
def _closed_pipe_is_an_exit() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # click would make it status 1
        raise click.exceptions.Exit(PIPE_STATUS) from None


class _Verbs(click.Group):
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _closed_pipe_is_an_exit():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _closed_pipe_is_an_exit():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return completing(importlib.import_module(f".{module_of(cmd_name)}", __package__).command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb of a command line; one that does not exist is refused with the nearest that does."""
        if not args[0].startswith("-") and args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, 1)
            ctx.fail(f"there is no verb {args[0]!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs from `VERBS` alone: their modules stay unloaded."""
        found = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, from `VERBS` alone: their modules stay unloaded."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exit_codes()])


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilewright", message="%(package)s %(version)s")
def command() -> None:
    """Compile int8 networks and tensor schedules to accelerator programs, and run them."""


# parameter -> names that it takes besides files
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "config": CONFIGS.keys,
    "other": CONFIGS.keys,
    "device": device_names,
    "dram": MEMORIES.keys,
}
_CONFIGS = (".json",)
_MODELS = (".onnx", ".tflite", ".pt2", ".bin", ".npz", ".gguf", ".py", ".tw")
# metavar -> suffixes, where it names none itself; ("",) are all files
SUFFIXES = {
    "NAME|FILE": _CONFIGS,
    "A": _CONFIGS,
    "B": _CONFIGS,
    "MODEL": _MODELS,
    "DB": (".db",),
    "FILE": ("",),
    "KEY": ("",),
    "FOLDER": ("/",),
}


class _Text(click.types.StringParamType):
    """A text that shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = NAMES.get(param.name or "", tuple)()
        found = [name for name in names if name.startswith(incomplete)]
        metavar = param.metavar or (param.name or "").upper()
        suffixes = SUFFIXES.get(metavar) or tuple(re.findall(r"\.\w+", metavar))
        return [CompletionItem(value) for value in found + (files(incomplete, suffixes) if suffixes else [])]


def completing(command: click.Command) -> click.Command:
    """`command` with texts that shells complete, in all its forms."""
    for param in command.params:
        if isinstance(param.type, click.types.StringParamType):
            param.type = _Text()
    for form in command.commands.values() if isinstance(command, click.Group) else ():
        completing(form)
    return command


def files(start: str, suffixes: tuple[str, ...]) -> list[str]:
    """Paths that begin with `start`: files that end in one of `suffixes`, and folders, with a slash.

    A folder that is the only match is entered, as a shell puts a space behind an only match.
    """
    name = start.rpartition("/")[2]
    prefix = start.removesuffix(name)
    try:
        entries = sorted(os.scandir(os.path.expanduser(prefix) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    shown = [e for e in entries if e.name.startswith(name) and (name or not e.name.startswith("."))]
    found = [prefix + e.name + ("/" if e.is_dir() else "") for e in shown if e.is_dir() or e.name.endswith(suffixes)]
    if len(found) == 1 and found[0].endswith("/") and found[0] != start:
        return files(found[0], suffixes) or found
    return found
