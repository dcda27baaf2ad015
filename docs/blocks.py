"""Runs the blocks of a page in order, and reads its command lines; tests/test_blocks.py does so for every page.

Python runs, and shell that is marked `sh`; of other shell the command lines are read. The blocks of a page share their
names, as a reader's session does. They run in a temporary folder that has `examples` and `tests` of the repository, so
that paths are those of the repository's root. A comment directly above a block:

    <!-- needs: torch, stories260K.bin -->                           modules, and files that the reader downloads
    <!-- not run: it waits for clients until it is interrupted -->   why it is skipped

A block without its modules or files is skipped; files are looked for in a folder beside the repository.

Blocks that `make docs` writes are code of the repository, and are left out.
"""

from __future__ import annotations

import doctest
import functools
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tilewright.cli import config
from tilewright.cli.app import VERBS, command
from tilewright.cli.main import run as run_command

ROOT = Path(__file__).parents[1]
LINKED = ("examples", "tests")
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_FENCE = re.compile(
    r"^(?:<!-- (needs|not run): (.*?) -->\n)?^( *)```([^\s`]*)[^\n`]*\n(.*?)^\3```$", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"(?<!`)`(tilewright\s[^`]+)`(?!`)")
_SHELL = ("", "sh", "text")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of its first line of code
    language: str
    source: str
    marker: str  # "needs", "not run", or ""
    reason: str

    @property
    def where(self) -> str:
        """Page and line, as an editor opens them."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def skipped_because(self) -> str:
        """Why it cannot run here; empty where it can."""
        if self.marker == "not run":
            return self.reason
        missing = [name for name in self.reason.split(", ") if name and not _is_here(name)]
        return f"needs {', '.join(missing)}" if missing else ""


def _is_here(name: str) -> bool:
    return name in _downloads() if "." in name else importlib.util.find_spec(name) is not None


@functools.cache
def _downloads() -> dict[str, Path]:
    """The files of models that lie beside the repository, by name."""
    return {path.name: path for path in (ROOT.parent / "shared" / "models").rglob("*.*")}


def pages() -> list[Path]:
    """README, CONTRIBUTING and every page of docs/."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that people wrote, in order."""
    text = _GENERATED.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
    return [
        Block(page, text.count("\n", 0, found.start(5)) + 1, found[4], found[5], found[1] or "", found[2] or "")
        for found in _FENCE.finditer(text)
    ]


def running_blocks(page: Path) -> list[Block]:
    """Those that run: Python, sessions with prompts, and shell that is marked `sh`."""
    return [block for block in blocks(page) if block.language in ("python", "pycon", "sh")]


def prepare(folder: Path) -> None:
    """Give an empty folder what pages read: parts of the repository, and files that the reader downloads."""
    for name, path in ({name: ROOT / name for name in LINKED} | _downloads()).items():
        (folder / name).symlink_to(path)


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block with the names of those before it; a session must print what the page shows, a command succeed."""
    if block.language == "sh":
        for line in block.source.replace("\\\n", " ").splitlines():
            _run_line(line.strip(), block)
    elif block.language == "python":
        exec(compile("\n" * (block.line - 1) + block.source, str(block.page), "exec"), names)
    else:
        _run_session(block, names)


def _run_session(block: Block, names: dict[str, Any]) -> None:
    session = doctest.DocTestParser().get_doctest(block.source, names, block.where, str(block.page), block.line - 1)
    told: list[str] = []
    options = doctest.ELLIPSIS | doctest.REPORT_UDIFF
    failed = doctest.DocTestRunner(optionflags=options).run(session, out=told.append, clear_globs=False).failed
    names.update(session.globs)
    if failed:
        raise AssertionError("".join(told))


def _run_line(line: str, block: Block) -> None:
    """Run a line of shell; the command in this process, which has imported what it needs."""
    arguments = _arguments(line) if line.startswith("tilewright ") else []
    if arguments and arguments == shlex.split(line, comments=True)[1:]:
        status = run_command(arguments)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        status = subprocess.run(["sh", "-c", line], env={**os.environ, "PATH": path}).returncode
    if status:
        raise AssertionError(f"{block.where}: status {status} of {line}")


def command_lines(page: Path) -> Iterator[tuple[str, list[str], bool]]:
    """(where, arguments, complete) of every `tilewright ...` of a page: lines of blocks, and parts of sentences.

    A sentence may leave arguments out.
    """
    for block in blocks(page):
        if block.language in _SHELL:
            for number, line in enumerate(block.source.replace("\\\n", "  ").splitlines(), block.line):
                line = line.strip().removeprefix("$ ")
                if line.startswith("tilewright ") and not line.startswith("tilewright: "):
                    yield f"{page.relative_to(ROOT)}:{number}", _arguments(line), True
    text = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), _GENERATED.sub("", page.read_text()))
    for found in _INLINE.finditer(text):
        arguments = _arguments(" ".join(found[1].split()))
        if arguments and arguments[0] in VERBS:
            yield f"{page.relative_to(ROOT)}: {found[1]!r}", arguments, False


def _arguments(line: str) -> list[str]:
    """What a shell gives the command: without comment, redirection and pipe."""
    try:
        words = shlex.split(line, comments=True)[1:]
    except ValueError:  # a quotation behind a pipe, which ends on another line
        words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
    end = next((k for k, word in enumerate(words) if word in ("|", "<", ">", "&", "&&")), len(words))
    return words[:end]


def parse(arguments: list[str], complete: bool = True) -> None:
    """Read arguments as the command does, without running it; raises click's errors.

    Whether files exist is not asked, but options, their choices and the number of arguments are, and of `complete`
    arguments what is missing.
    """
    found: click.Command = command
    context, name = click.Context(command, info_name="tilewright"), None
    while isinstance(found, click.Group):
        if not arguments:
            if complete:
                raise click.UsageError("a verb or form is missing")
            return
        forms = found.list_commands(context)
        if config.DEFAULT in forms and arguments[0] not in forms:
            arguments = [config.DEFAULT, *arguments]
        name, chosen, arguments = found.resolve_command(context, list(arguments))
        found = chosen or found
    context = click.Context(found, parent=context, info_name=name)
    try:
        values, left, _ = found.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage:
        if complete:
            raise
        return
    if left:
        raise click.UsageError(f"unexpected {' '.join(map(str, left))}")
    for parameter in found.params:
        value = values.get(parameter.name or "")
        if complete and parameter.required and not isinstance(value, (str, list, tuple)):
            raise click.MissingParameter(param=parameter, ctx=context)
        if isinstance(parameter.type, (click.Choice, click.types.IntParamType)) and isinstance(value, str):
            parameter.type_cast_value(context, value)
