"""Reads damaged files in processes with limits of time and memory, and says what came of each."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import selectors
import signal
import tempfile
import traceback
import unicodedata
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.damage import changes
from tests.damage.formats import FORMATS, Format
from tilewright.hw.errors import TilewrightError

SECONDS, MEMORY = 20.0, 1 << 30
ACCEPTED = "accepted"
_LONGEST = 4000  # characters of an error, which may list every operator of a network
_PRINTED = 100  # one copy in so many is also printed by a verb
_BATCH = 250  # files that one process reads
# what takes long to import, before the processes begin
_HEAVY = (
    "tilewright.compiler.cache",
    "tilewright.compiler.frontend.onnx",
    "tilewright.compiler.frontend.tflite.importer",
    "optuna",
)


@dataclass
class Found:
    """How many files were accepted or refused, by the error's class; and the seeds of failures with what was seen."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    slowest: float = 0.0  # seconds that a file took
    controls: int = 0  # characters that a verb printed and that move a terminal's cursor or turn its direction
    memory: int = 0  # bytes that a process had more at the end of its files than at their beginning, at most


def judge(name: str, seeds: range, seconds: float = SECONDS, memory: int = MEMORY) -> Found:
    """Read the copies of a format that these seeds damage."""
    form, found = FORMATS[name], Found()
    for module in _HEAVY:
        importlib.import_module(module)
    samples, left = form.make(), list(seeds)
    while left:
        answered = _batch(form, samples, left[:_BATCH], seconds, memory, found)
        left = left[answered:]
    return found


def copy(form: Format, samples: Sequence[bytes], seed: int) -> bytes:
    """The damaged copy that a seed makes; one that a verb is to print has control characters in its texts."""
    sample = samples[seed % len(samples)]
    return changes.controls(sample, seed) if _is_printed(form, seed) else form.damage(sample, seed)


def _is_printed(form: Format, seed: int) -> bool:
    return form.verb is not None and seed % _PRINTED == 7


def _batch(form: Format, samples, seeds: list[int], seconds: float, memory: int, found: Found) -> int:
    """Read copies in one process until all are done, or one ends it; how many were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(form, samples, seeds, memory, writing)
    os.close(writing)
    done = 0
    with os.fdopen(reading, "rb", buffering=0) as pipe, selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while done < len(seeds):
            if not waiting.select(seconds):
                os.kill(child, signal.SIGKILL)
                found.failures.append((seeds[done], f"no answer in {seconds:g} s"))
                break
            line = _line(pipe)
            if not line:
                break
            _note(found, seeds[done], json.loads(line))
            done += 1
    status = os.waitpid(child, 0)[1]
    if done < len(seeds):
        if not (found.failures and found.failures[-1][0] == seeds[done]):
            found.failures.append((seeds[done], f"the process ended with status {status}"))
        done += 1
    return done


def _line(pipe) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        part = pipe.read(1)
        if not part:
            return b""
        found += part
    return found


def _note(found: Found, seed: int, answer: dict) -> None:
    found.slowest, found.memory = max(found.slowest, answer["seconds"]), max(found.memory, answer["memory"])
    found.controls += answer["controls"]
    if answer["failed"]:
        found.failures.append((seed, answer["what"]))
    else:
        found.counts[answer["what"]] += 1


def _child(form: Format, samples, seeds: list[int], memory: int, pipe: int) -> None:
    status = 1
    try:
        warnings.simplefilter("ignore")  # of numbers that overflow in the constants of a damaged network
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # libraries in C++ write there
        most = _pages("VmSize") + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            path = Path(folder, f"damaged{form.suffix}")
            for seed in seeds:
                path.write_bytes(copy(form, samples, seed))
                answer = json.dumps(_answer(form, path, _is_printed(form, seed))) + "\n"
                os.write(pipe, answer.encode())
        status = 0
    finally:
        os._exit(status)


def _answer(form: Format, path: Path, printed: bool) -> dict:
    before = os.times()
    held = _pages("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    what, failed = _outcome(form, path)
    moving = _moving(form, path) if printed and not failed else ""
    if moving:
        what, failed = f"a verb printed {moving!r}", True
    after = os.times()
    return {
        "what": what,
        "failed": failed,
        "controls": len(moving),
        "seconds": after.elapsed - before.elapsed,
        "memory": max(0, _pages("VmHWM") - held),
    }


def _outcome(form: Format, path: Path) -> tuple[str, bool]:
    """(what came of a file, whether it may not)."""
    try:
        return form.read(path) or ACCEPTED, False
    except TilewrightError as exc:
        text = " ".join(str(exc).split())  # as the command prints it
        if _for_want_of_memory(exc):
            return f"memory over the limit: {text}", True
        if not text or not text.isprintable() or len(text) > _LONGEST:
            return f"the text is no short line: {text[:500]!r}", True
        return type(exc).__name__, False
    except Exception:
        return traceback.format_exc(), True


def _moving(form: Format, path: Path) -> str:
    """The characters that the format's verb prints and that are not for a terminal; a defect of it is raised."""
    from tilewright.cli.main import run

    assert form.verb is not None
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        run([str(word) for word in form.verb(path)])
    return "".join(c for c in out.getvalue() if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\n\t")


def _for_want_of_memory(exc: BaseException | None) -> bool:
    """Whether it came from a MemoryError, at any remove."""
    while exc is not None:
        if isinstance(exc, MemoryError):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def _pages(key: str) -> int:
    """A figure of this process in bytes, as /proc has it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    raise LookupError(key)
