"""Targets: execution modules that operators can run on, described by what they accept and what it costs.

An `ExecModule` has a pattern table, memories, a cost function, transformations of the network and a hook that
generates code. A `Target` is a list of modules; compiler/target/assign.py gives each operator to the module that is
predicted to be fastest, transfers included. See docs/targets.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...hw.errors import InputError
from .. import graph as g
from .steps import Steps


def _runs(*ops: g.Operator) -> str:
    return ""


@dataclass(frozen=True)
class Pattern:
    """A chain of operators, each the only reader of the one before it, that a module runs as one.

    `refusal` gets the operators and says why the module cannot run them; empty if it can.
    """

    name: str
    operators: tuple[type[g.Operator], ...]
    refusal: Callable[..., str] = _runs


class Refusal(Exception):
    """Raised by `ExecModule.generate` where operators turn out not to fit: `reasons` by operator name.

    They are then given to other modules.
    """

    def __init__(self, reasons: dict[str, str]):
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


@dataclass(frozen=True)
class Memory:
    """One level of a module's memories: bytes, bytes per cycle to the level above, what lies in it."""

    name: str
    nbytes: int
    bytes_per_cycle: float
    holds: tuple[str, ...]


class ExecModule(ABC):
    """Something that runs operators.

    `name` is unique in a target. `patterns` are tried in order, longer chains first; `memories` are listed from the
    innermost level on; `transformations` rewrite the graph before operators are assigned.
    """

    name: str
    patterns: Sequence[Pattern] = ()
    memories: Sequence[Memory] = ()
    transformations: Sequence[Callable[[g.Graph], g.Graph]] = ()

    @abstractmethod
    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Predicted time of the operators that a pattern matched, their operands being where the module reads them."""

    @abstractmethod
    def transfer_seconds(self, t: g.Tensor) -> float:
        """Predicted time to take a tensor from plain layout in the host's memory to the module, or back."""

    @abstractmethod
    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append the steps that compute `ops`, in order; tensors of the graph are found in `steps` by their names.

        Raises `Refusal` for operators that it cannot run after all.
        """


@dataclass(frozen=True)
class Target:
    """Modules by preference: of two that are equally fast the first is taken.

    Raises `InputError` if two have one name.
    """

    name: str
    modules: tuple[ExecModule, ...]

    def __post_init__(self) -> None:
        names = [m.name for m in self.modules]
        if len(set(names)) < len(names):
            raise InputError(f"target {self.name!r}: two modules have the same name, of {', '.join(names)}")
