"""Tries ways to quantise a network and takes the most accurate one; what is done is kept for a run that goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from ...compiler.frontend.source import Source
from ...hw.errors import FileError, TilewrightError, UnsupportedError
from ...hw.foreign import read_json
from .meter import Node
from .ranges import wide
from .result import Comparison, Quantised, Way
from .samples import Input, Samples

_LEAST_GAIN_DB = 0.3  # of a form that is taken in place of the plain one
_WORTH_DB = 1.0  # of operators that stay in float, which the host computes
_GOOD_DB = 25.0  # of a network whose operators all become integers
_LOST_DB = 3.0  # of an operator that may stay in float
_MOST_MACS = 0.01  # of the network's, in operators that stay in float
_MOST_KEPT, _MOST_IN_VAIN = 8, 3  # operators that are tried in float, all and those that do not help
_FEW = 8  # samples: fewer measure the ranges and judge as well
_SAME_RIGHT, _SAME_SAMPLES = 0.01, 3  # differences of accuracy below both are chance, and less noise decides
_KEY = "key"  # the file that says what a folder of intermediate results is of


class Tell(Protocol):
    """Hears of work as it goes on."""

    def __call__(self, steps: int = 1, what: str = "", total: int | None = None) -> object:
        """So many runs of samples more are done, of `total`; `what`, if not empty, is done now."""
        ...


def tell_no_one(steps: int = 1, what: str = "", total: int | None = None) -> None:
    """Tell no one."""


class Candidates(Protocol):
    """The networks of a format that ways to quantise give."""

    @property
    def forms(self) -> Sequence[str]:
        """Fields of `Way` that the format has."""
        ...

    def network(self, way: Way, done: Callable[[], None]) -> bytes | None:
        """The file of a way; None where it is no other than without its last form.

        `done` is called after each sample. Raises `UnsupportedError` where the method cannot be used.
        """
        ...

    def compare(self, way: Way, network: bytes, done: Callable[[], None]) -> Comparison:
        """The network of a way against the float network on the samples that judge; `done` is called after each."""
        ...

    def macs(self) -> Mapping[str, int]:
        """Multiply-accumulates of each operator."""
        ...


@dataclass(frozen=True)
class Work:
    """What candidates are made of: `measured` and `judged` are numbers of samples, `in_float` names of operators.

    Intermediate results go to `folder`.
    """

    samples: Samples
    measured: Sequence[int]
    judged: Sequence[int]
    folder: Path
    in_float: Sequence[str]

    @property
    def labels(self) -> np.ndarray | None:
        """Of the samples that judge."""
        return None if self.samples.labels is None else self.samples.labels[list(self.judged)]


class FloatNetwork(ABC):
    """A float network of a file: `content` is the file with fixed sizes, `inputs` what a sample has."""

    methods: ClassVar[Sequence[str]]  # how ranges are measured; the first is the quickest
    suffix: ClassVar[str]  # of the int8 network's file

    path: str
    content: bytes
    inputs: Sequence[Input]
    nodes: Sequence[Node]
    outputs: Sequence[str]

    @abstractmethod
    def candidates(self, work: Work) -> Candidates:
        """The networks that ways give."""

    def quantise(
        self,
        samples: Samples,
        keep: Sequence[str] = (),
        quick: bool = False,
        folder: Path | None = None,
        tell: Tell = tell_no_one,
    ) -> Quantised:
        """Quantise on `samples`: the best way has the most labels right, without labels the highest signal to noise.

        Operators named in `keep` stay in float. With `quick` only minimum and maximum are tried. `folder` is for
        intermediate results, as `working_folder` has it. Raises `UnsupportedError` for unknown operators.
        """
        names, keep = {node.name for node in self.nodes}, list(dict.fromkeys(keep))
        if unknown := [name for name in keep if name not in names]:
            raise UnsupportedError(f"{self.path}: has no operator {unknown[0]!r} to keep in float")
        methods = self.methods[: 1 if quick else None]
        measured, judged = split(samples)
        notes = list(samples.notes)
        if not quick and len(samples) < _FEW:
            notes.append(
                f"too few samples, {len(samples)}: ranges are measured on the ones that judge, so that the figures are "
                "better than those of other data; give 40 or more"
            )
        in_float = sorted(wide(self.nodes, self.outputs))
        with working_folder(folder, digest(self.content, samples, methods, keep, quick)) as work:
            candidates = self.candidates(Work(samples, measured, judged, work, in_float))
            search = Search(candidates, len(measured), len(judged), work, tell)
            search.run(methods, keep, not quick, self.path)
        path = Path(self.path)
        return Quantised(
            network=Source(path.with_suffix(self.suffix), search.network),
            float_network=Source(path, self.content),
            way=search.best,
            tried=search.tried,
            refused=search.refused,
            in_float=in_float,
            samples=len(samples),
            notes=notes,
        )


def split(samples: Samples) -> tuple[Sequence[int], Sequence[int]]:
    """(numbers of the samples that ranges are measured on, those that networks are judged by).

    Every fourth sample judges; fewer than `_FEW` do both.
    """
    every = range(len(samples))
    if len(samples) < _FEW:
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
    owner, aside = path / _KEY, path.with_name(f"{path.name}.old")  # whole folders move, so that each has its key
    try:
        if path.exists() and not owner.is_file():
            raise FileError(f"{path}: is in the way of intermediate results, which go there; move it")
        if not path.exists() or owner.read_text() != key:
            _remove(path, aside)
            aside.mkdir()
            (aside / _KEY).write_text(key)
            aside.rename(path)
    except OSError as exc:
        raise FileError(f"{path}: cannot be written ({exc.strerror or exc})") from None
    try:
        yield path
    except TilewrightError:  # the same again would end the same way
        _remove(path, aside)
        raise
    _remove(path, aside)


def _remove(path: Path, aside: Path) -> None:
    """Remove a folder by way of the name `aside`."""
    shutil.rmtree(aside, ignore_errors=True)
    if path.exists():
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


class Search:
    """Ways tried so far with their comparisons, in order.

    `measured` and `judged` are the numbers of samples that ranges are measured on and that networks are judged by.
    """

    def __init__(self, candidates: Candidates, measured: int, judged: int, folder: Path, tell: Tell = tell_no_one):
        self._candidates, self._folder, self._tell = candidates, folder, tell
        self._measured, self._judged = measured, judged
        self.tried: dict[Way, Comparison] = {}
        self.refused: dict[str, str] = {}
        self._chosen: list[tuple[Way, bytes]] = []
        self._total = self._steps_left = 0  # runs of samples: of all ways, and of the one that is being tried

    def run(self, methods: Sequence[str], keep: Sequence[str], forms: bool, source: str) -> None:
        """Try all methods, and with `forms` the forms of the best, and operators in float where that is poor.

        Raises `UnsupportedError` where no method can be used.
        """
        steps, changes = self._measured + self._judged, self._candidates.forms if forms else ()
        self._total = (len(methods) + len(changes)) * steps
        for method in methods:
            self._try(Way(method, kept=tuple(keep)), steps)
        if not self._chosen:
            raise UnsupportedError(f"{source}: {'; '.join(self.refused.values())}")
        for form in changes:
            self._try(replace(self.best, **{form: True}), steps, _LEAST_GAIN_DB)
        if forms:
            self._keep_worst()

    @property
    def best(self) -> Way:
        """The way that is taken."""
        return self._chosen[-1][0]

    @property
    def network(self) -> bytes:
        """The file of the best way."""
        return self._chosen[-1][1]

    def _done(self) -> None:
        self._steps_left -= 1
        self._tell()

    def _try(self, way: Way, steps: int, gain_db: float = 0.0) -> bool:
        """Quantise so, compare, and take it where more results are right, or as many with `gain_db` less noise."""
        self._steps_left = steps
        self._tell(0, str(way), self._total)
        try:
            made = self._compared(way)
        except UnsupportedError as exc:
            self.refused[way.method] = str(exc)
            made = None
        self._tell(max(0, self._steps_left))  # those that were not needed
        if made is None:
            return False
        network, comparison = made
        self.tried[way] = comparison
        if self._chosen:
            before = self.tried[self.best]
            more_right = _right(comparison) - _right(before)
            if abs(more_right) < max(_SAME_RIGHT, _SAME_SAMPLES / self._judged):
                more_right = 0
            if more_right < 0 or (more_right == 0 and comparison.snr_db <= before.snr_db + gain_db):
                return False
        self._chosen = [(way, network)]
        return True

    def _compared(self, way: Way) -> tuple[bytes, Comparison] | None:
        """The network of a way and its comparison, from the folder where an interrupted run left them."""
        name = hashlib.sha256(repr(asdict(way)).encode()).hexdigest()[:16]
        network, comparison = self._folder / f"{name}.network", self._folder / f"{name}.json"
        if comparison.exists():
            return network.read_bytes(), Comparison.from_json(read_json(comparison, "a comparison", 1 << 26))
        made = self._candidates.network(way, self._done)
        if made is None:
            return None
        judged = self._candidates.compare(way, made, self._done)
        network.write_bytes(made)
        write_whole(comparison, json.dumps(judged.to_json()))
        return made, judged

    def _keep_worst(self) -> None:
        """Leave operators that lose much in float where that raises the accuracy of a poor network."""
        macs, tried, in_vain = self._candidates.macs(), set[str](), 0
        most = _MOST_MACS * sum(macs.values())
        while self.tried[self.best].snr_db < _GOOD_DB and len(tried) < _MOST_KEPT and in_vain < _MOST_IN_VAIN:
            best = self.best
            left = most - sum(macs.get(name, 0) for name in best.kept)
            lossy = {loss.name: loss.lost_db for loss in self.tried[best].operators if loss.lost_db > _LOST_DB}
            left_out = {name for name in lossy if macs.get(name, 0) > left} | tried | {*best.kept}
            if not lossy.keys() - left_out:
                return
            worst = max(lossy.keys() - left_out, key=lossy.__getitem__)
            tried.add(worst)
            self._total += self._judged
            in_vain += not self._try(replace(best, kept=(*best.kept, worst)), self._judged, _WORTH_DB)


def _right(comparison: Comparison) -> float:
    """Share of the labels that int8 has right; without labels, of the float network's classes; else 0."""
    known = (comparison.int8_accuracy, comparison.agreement, 0.0)
    return next(share for share in known if share is not None)


def write_whole(path: Path, text: str) -> None:
    """Write a file that an interrupted run leaves complete or not at all."""
    temporary = path.with_suffix(".part")
    temporary.write_text(text)
    temporary.replace(path)
