"""Tries ways to quantise a network and takes the most accurate one; what is done is kept for a run that goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ...hw.errors import FileError, TilewrightError, UnsupportedError
from ...hw.foreign import read_json
from .result import Comparison, Way
from .samples import Samples

_LEAST_GAIN_DB = 0.3  # of a form that is taken in place of the plain one
_WORTH_DB = 1.0  # of operators that stay in float, which the host computes
_GOOD_DB = 25.0  # of a network whose operators all become integers
_LOST_DB = 3.0  # of an operator that may stay in float
_MOST_MACS = 0.01  # of the network's, in operators that stay in float
_MOST_KEPT = 8
_KEY = "key"  # the file that says what a folder of intermediate results is of

Tell = Callable[[str, int, int], None]
"""Called as work goes on: what is done now, runs of samples so far, and how many there will be."""


def no_one(step: str, done: int, total: int) -> None:
    """Tell no one."""


class Candidates(Protocol):
    """The networks of a format that ways to quantise give."""

    forms: Sequence[str]  # fields of `Way` that the format has

    def network(self, way: Way, done: Callable[[], None]) -> bytes | None:
        """The file of a way; None where it is no other than without its last form.

        `done` is called after each sample. Raises `UnsupportedError` where the method cannot be used.
        """
        ...

    def compare(self, network: bytes, done: Callable[[], None]) -> Comparison:
        """`network` against the float network on the samples that judge; `done` is called after each."""
        ...

    def macs(self) -> Mapping[str, int]:
        """Multiply-accumulates of each operator."""
        ...


def split(samples: Samples) -> tuple[Sequence[int], Sequence[int]]:
    """(numbers of the samples that ranges are measured on, those that networks are judged by).

    Every fourth sample judges; fewer than eight do both.
    """
    every = range(len(samples))
    if len(samples) < 8:
        return every, every
    return [k for k in every if k % 4 != 3], [k for k in every if k % 4 == 3]


def digest(model: bytes, samples: Samples, *options: object) -> str:
    """A text that is another one for another network, other samples or other options."""
    total = hashlib.sha256(repr(options).encode())
    total.update(model)
    for sample in samples:
        for name, array in sample.items():
            total.update(f"{name}{array.shape}{array.dtype}".encode())
            total.update(np.ascontiguousarray(array).data)
    if samples.labels is not None:
        total.update(samples.labels.tobytes())
    return total.hexdigest()


@contextmanager
def working_folder(path: Path | None, key: str) -> Generator[Path]:
    """A folder for intermediate results, removed at the end.

    With `path` it is that one, and an interrupted run leaves it: the next one of the same `key` finds what is there,
    one of another key finds it empty. Raises `FileError`.
    """
    if path is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    owner = path / _KEY
    try:
        if path.exists() and not owner.is_file():
            raise FileError(f"{path}: is in the way of intermediate results, which go there; move it")
        if not path.exists() or owner.read_text() != key:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            owner.write_text(key)
    except OSError as exc:
        raise FileError(f"{path}: cannot be written ({exc.strerror or exc})") from None
    try:
        yield path
    except TilewrightError:  # the same again would end the same way
        shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


class Search:
    """Ways tried so far with their comparisons, in order; `networks` has those good enough to be taken."""

    def __init__(self, candidates: Candidates, measured: int, judged: int, folder: Path, tell: Tell = no_one):
        self._candidates, self._runs, self._folder, self._tell = candidates, (measured, judged), folder, tell
        self.tried: dict[Way, Comparison] = {}
        self.refused: dict[str, str] = {}
        self._networks: dict[Way, bytes] = {}
        self._chosen: list[Way] = []
        self._done, self._total, self._step = 0, 0, ""

    def run(self, methods: Sequence[str], keep: Sequence[str], forms: bool, source: str) -> None:
        """Try all methods, and with `forms` the forms of the best, and operators in float where that is poor.

        Raises `UnsupportedError` where no method can be used.
        """
        self._total = len(methods) * sum(self._runs) + (len(self._candidates.forms) * sum(self._runs) if forms else 0)
        for method in methods:
            self._try(Way(method, kept=tuple(keep)))
        if not self._chosen:
            raise UnsupportedError(f"{source}: {'; '.join(self.refused.values())}")
        if forms:
            for form in self._candidates.forms:
                self._try(replace(self.best, **{form: True}), _LEAST_GAIN_DB)
            self._keep_worst()

    @property
    def best(self) -> Way:
        """The way that is taken."""
        return self._chosen[-1]

    @property
    def network(self) -> bytes:
        """The file of the best way."""
        return self._networks[self.best]

    def _advance(self) -> None:
        self._done += 1
        self._total = max(self._total, self._done)
        self._tell(self._step, self._done, self._total)

    def _try(self, way: Way, gain_db: float = 0.0) -> bool:
        """Quantise so, compare, and take it where it is better by `gain_db`, with no fewer labels right."""
        self._step = str(way)
        self._tell(self._step, self._done, self._total)
        try:
            result = self._compared(way)
        except UnsupportedError as exc:
            self.refused[way.method] = str(exc)
            return False
        if result is None:
            return False
        network, comparison = result
        self.tried[way] = comparison
        if self._chosen:
            before = self.tried[self.best]
            right, right_before = comparison.int8_accuracy or 0.0, before.int8_accuracy or 0.0
            if right < right_before or (right == right_before and comparison.snr_db <= before.snr_db + gain_db):
                return False
        self._networks = {way: network}
        self._chosen.append(way)
        return True

    def _compared(self, way: Way) -> tuple[bytes, Comparison] | None:
        """The network of a way and its comparison, from the folder where an interrupted run left them."""
        name = hashlib.sha256(repr(asdict(way)).encode()).hexdigest()[:16]
        network, comparison = self._folder / f"{name}.network", self._folder / f"{name}.json"
        if comparison.exists():
            return network.read_bytes(), Comparison.from_json(read_json(comparison, "a comparison", 1 << 26))
        made = self._candidates.network(way, self._advance)
        if made is None:
            return None
        judged = self._candidates.compare(made, self._advance)
        network.write_bytes(made)
        write_whole(comparison, json.dumps(judged.to_json()))
        return made, judged

    def _keep_worst(self) -> None:
        """Leave the operators that lose most in float, as long as that raises the accuracy of a poor network."""
        macs = self._candidates.macs()
        total = sum(macs.values()) or 1
        while self.tried[self.best].snr_db < _GOOD_DB and len(self.best.kept) < _MOST_KEPT:
            best = self.best
            left = _MOST_MACS * total - sum(macs.get(name, 0) for name in best.kept)
            losses = sorted(self.tried[best].operators, key=lambda loss: -loss.lost_db)
            worst = [
                loss.name
                for loss in losses
                if loss.lost_db > _LOST_DB and loss.name not in best.kept and macs.get(loss.name, 0) <= left
            ]
            if not worst or not self._try(replace(best, kept=(*best.kept, worst[0])), _WORTH_DB):
                return


def write_whole(path: Path, text: str) -> None:
    """Write a file that an interrupted run leaves complete or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)
