"""Slow work in parallel processes, with one stored result per key, so that a second start continues an interrupted one.

`run` calls a function with every argument and stores each result under its key at once: a process that is killed loses
only the running jobs. Any executor of `concurrent.futures` will do; `processes` is a pool on this machine.

    with Store("results.db") as store, processes(2) as pool:
        found = run(slow, [1, 2, 3], key=str, store=store, workers=pool)
    found["2"].value
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..hw.errors import BoardError, ExecutionError, FileError, TilewrightError, UnsupportedError
from ..hw.foreign import parse_json

Argument = TypeVar("Argument")
_BUSY_SECONDS = 60.0  # that a process waits for another one to write
_TABLE = "CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, topic TEXT NOT NULL, value TEXT NOT NULL)"


@dataclass(frozen=True)
class Outcome:
    """The result of one job: its `value`, or the `error` that it ended with, as "Class: text".

    `new` is False where the store had it.
    """

    key: str
    value: Any = None
    error: str = ""
    new: bool = True


class Store:
    """JSON values by key in the SQLite file `path`, each also under a topic; several processes may use one file.

    Raises `FileError` where the file cannot be used, or is something else.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        with self._named():
            self._base = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
            self._base.execute(_TABLE)
            self._base.execute("CREATE INDEX IF NOT EXISTS topics ON results (topic)")
            self._base.commit()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def get(self, key: str) -> Any:
        """The value of `key`; None if there is none."""
        with self._named():
            row = self._base.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
            return None if row is None else parse_json(_text(row[0]), self.path)

    def put(self, key: str, value: object, topic: str = "") -> None:
        """Store `value`, any JSON value, under `key`, and replace an earlier one; it is on the disk on return."""
        with self._named(), self._base:
            self._base.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", (key, topic, json.dumps(value)))

    def of(self, topic: str) -> list[Any]:
        """Values of a topic, in the order in which they came."""
        with self._named():
            rows = self._base.execute("SELECT value FROM results WHERE topic = ? ORDER BY rowid", (topic,)).fetchall()
            return [parse_json(_text(value), self.path) for (value,) in rows]

    def topics(self, start: str = "") -> list[str]:
        """The topics that begin with `start`, sorted."""
        with self._named():
            names = {_text(topic) for (topic,) in self._base.execute("SELECT DISTINCT topic FROM results")}
            return sorted(topic for topic in names if topic.startswith(start))

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as exc:
            raise FileError(
                f"{self.path}: cannot be used as a database of results ({exc}); give another name"
            ) from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"it holds {type(value).__name__} in place of a text")
    return value


def content_key(*facts: object) -> str:
    """A key of everything that a result depends on: JSON values, whose order in mappings does not matter."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def check_semaphores() -> None:
    """Raise `UnsupportedError` where this machine gives no semaphores: pools of processes need them."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except (ImportError, OSError) as exc:
        raise UnsupportedError(
            f"several processes need semaphores, which the system does not give ({exc}); make /dev/shm writable, or "
            "use one process, as with --jobs 1 or --workers 1"
        ) from None


@contextmanager
def processes(count: int) -> Iterator[Executor]:
    """A pool of `count` new processes of this Python; they inherit nothing and end with this one, however it ends.

    Functions and arguments go there by pickle. A script that uses it starts its work below
    `if __name__ == "__main__":`, because each process imports it. Interrupts reach only the caller. Raises as
    `check_semaphores`.
    """
    check_semaphores()
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run(
    function: Callable[[Argument], object],
    arguments: Iterable[Argument],
    *,
    key: Callable[[Argument], str],
    store: Store | None = None,
    topic: Callable[[Argument], str] | None = None,
    workers: Executor | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """The outcomes of `function(argument)` for all `arguments`, by key; each key is computed once.

    Results in `store` are not computed again, new ones are put there under `topic(argument)`. Without `workers` the
    jobs run in this process, one after the other. `on_done` is called with every outcome as it comes.

    The error of a job is its outcome. A `TilewrightError` is stored as a result is; a `BoardError` or a defect is
    not, so that the next start tries again. On KeyboardInterrupt no further job starts, and those under way are
    finished and stored. Raises `ExecutionError` where a worker process ends by itself, for want of memory perhaps.
    """
    outcomes: dict[str, Outcome] = {}
    pending: dict[str, Argument] = {}

    def done(outcome: Outcome, kept: bool) -> None:
        outcomes[outcome.key] = outcome
        if store is not None and kept:
            about = "" if topic is None else topic(pending[outcome.key])
            store.put(outcome.key, {"value": outcome.value, "error": outcome.error}, about)
        if on_done is not None:
            on_done(outcome)

    for argument in arguments:
        name = key(argument)
        stored = None if store is None or name in outcomes else store.get(name)
        if stored is not None:
            done(Outcome(name, stored["value"], stored["error"], new=False), kept=False)
        elif name not in outcomes:
            pending[name] = argument
    if workers is None:
        for name, argument in pending.items():
            done(*_outcome(name, lambda argument=argument: function(argument)))
    else:
        _collect({workers.submit(function, argument): name for name, argument in pending.items()}, done)
    return outcomes


def _collect(futures: Mapping[Future, str], done: Callable[[Outcome, bool], None]) -> None:
    """Wait for all `futures`; on an interrupt for those that have begun."""
    left = set(futures)
    try:
        while left:
            ready, left = wait(left, return_when=FIRST_COMPLETED)
            for future in ready:
                done(*_outcome(futures[future], future.result))
    except KeyboardInterrupt:
        begun = [future for future in left if not future.cancel()]
        for future in wait(begun).done:
            done(*_outcome(futures[future], future.result))
        raise
    except BrokenProcessPool:
        raise ExecutionError(
            f"a worker process ended by itself, perhaps for want of memory; {len(left)} jobs are left: start again "
            "with fewer jobs at a time, finished results are kept"
        ) from None
    finally:
        for future in left:
            future.cancel()


def _outcome(name: str, result: Callable[[], object]) -> tuple[Outcome, bool]:
    """(the outcome of a job, whether another start would find the same)."""
    try:
        return Outcome(name, result()), True
    except BrokenProcessPool:
        raise
    except Exception as exc:
        text = f"{type(exc).__name__}: {exc}"
        return Outcome(name, error=text), isinstance(exc, TilewrightError) and not isinstance(exc, BoardError)


def _start() -> None:
    """Begin a worker process: interrupts are the parent's, and the process ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
