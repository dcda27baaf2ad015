"""Entry point of the `tilewright` command: runs it and turns every error into one line and an exit status."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence

from ..hw.errors import FileError, TilewrightError, printable

PROGRAM = "tilewright"
USAGE_STATUS = 2  # what click and most commands use
# read by the libraries behind numpy's matrix products when numpy is imported
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# objects after which Python searches for cycles: imports and networks make hundreds of thousands that stay, and with
# Python's 700 a short command spends a tenth of its time on them
_COLLECT = (50_000, 20, 20)
# chooses OpenBLAS's kernels: another processor's may take twice the time
KERNELS_VARIABLE = "OPENBLAS_CORETYPE"
INTERRUPT_STATUS = 130  # 128 + SIGINT, as shells have it


def main() -> None:
    """The console script.

    Matrix products run on one thread unless the environment sets another number: the model's are short, and threads
    that wait for each other lose more on a busy machine than they gain on an idle one.
    """
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    gc.set_threshold(*_COLLECT)
    warnings.formatwarning = lambda message, *_: f"{PROGRAM}: warning: {message}\n"
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: the process's) and return the exit status."""
    try:
        import click

        from .app import PIPE_STATUS, command
    except ModuleNotFoundError as exc:
        if exc.name != "click":
            raise
        return _fail("the command's own packages are not installed; run: pip install 'tilewright[cli]'", 1)
    try:
        # A verb returns its exit status, or None for success.
        status = command.main(arguments, prog_name=PROGRAM, standalone_mode=False) or 0
        if status == PIPE_STATUS:
            _discard_output()
        return status
    except TilewrightError as exc:
        return _fail(str(exc), exc.exit_code)
    except click.exceptions.NoArgsIsHelpError as exc:
        print(exc.format_message(), file=sys.stderr)
        return USAGE_STATUS
    except click.UsageError as exc:
        where = exc.ctx.command_path if exc.ctx else PROGRAM
        return _fail(f"{exc.format_message()} (see {where} --help)", USAGE_STATUS)
    except click.ClickException as exc:
        return _fail(exc.format_message(), 1)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPT_STATUS)
    except OSError as exc:
        _discard_output()
        return _fail(f"{exc.filename or 'standard output'}: {exc.strerror or exc}", FileError.exit_code)
    except MemoryError:
        return _fail("out of memory", 1)


def _fail(text: str, status: int) -> int:
    line = printable(" ".join(text.split()))
    print(f"{PROGRAM}: error: {line}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """Let the interpreter's last flush succeed where standard output is full or closed."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
