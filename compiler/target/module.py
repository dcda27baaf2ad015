"""Targets: execution modules that operators can run on, with their patterns and costs.

An `ExecModule` has a pattern table, memories, a cost function, transformations of the network and a hook that
generates code. A `Target` is a list of modules; compiler/target/assign.py gives each operator to the module that is
predicted to be fastest, transfers included. See docs/targets.md.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...hw.errors import InputError
from .. import graph as g
from .steps import Steps

if TYPE_CHECKING:
    from ..kernels.table import Alternative


def _runs(*ops: g.Operator) -> str:
    return ""


@dataclass(frozen=True)
class Pattern:
    """A chain of operators that a module runs as one; each is the only reader of its predecessor.

    `refusal(*ops)` is the reason why the module cannot run them; empty if it can.
    """

    name: str
    operators: tuple[type[g.Operator], ...]
    refusal: Callable[..., str] = _runs


class Refusal(Exception):
    """Raised by `ExecModule.generate` for operators that it cannot run: `reasons` by operator name.

    The compiler then assigns them to other modules.
    """

    def __init__(self, reasons: dict[str, str]):
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


@dataclass(frozen=True)
class Memory:
    """One level of a module's memories: bytes, bytes per cycle to the level above, and its contents."""

    name: str
    nbytes: int
    bytes_per_cycle: float
    holds: tuple[str, ...]


class ExecModule(ABC):
    """A unit that runs operators.

    `name` is unique in a target. `patterns` are tried in order, longer chains first; `memories` are listed from the
    innermost level on; `transformations`, functions with a docstring, rewrite the graph before operators are assigned.
    Operators of the kinds `kept` that a pattern matches run on the module, whatever others would take. `kernels` are
    tried beside those of compiler/kernels/table.py while a network is compiled for the target.
    """

    name: str
    patterns: Sequence[Pattern] = ()
    memories: Sequence[Memory] = ()
    transformations: Sequence[Callable[[g.Graph], g.Graph]] = ()
    kept: tuple[type[g.Operator], ...] = ()
    kernels: Sequence[Alternative] = ()

    def passes(self) -> list[tuple[str, str]]:
        """(name, first line of the docstring) of each transformation, in order."""
        found = [t.func if isinstance(t, partial) else t for t in self.transformations]
        return [(t.__name__.strip("_"), (inspect.getdoc(t) or "").partition("\n")[0]) for t in found]

    @abstractmethod
    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Predicted time of the operators that a pattern matched, without the transfers of their operands."""

    @abstractmethod
    def transfer_seconds(self, t: g.Tensor) -> float:
        """Predicted time to take a tensor from plain layout in the host's memory to the module, or back."""

    def overlap_seconds(self, before: g.Operator, op: g.Operator) -> float:
        """Predicted seconds saved if `op` runs directly after `before`."""
        return 0.0

    def joined_seconds(self, op: g.Operator) -> float:
        """Predicted seconds saved because a change of layout before or after `op` is part of its call."""
        return 0.0

    def output_seconds(self, t: g.Tensor) -> float:
        """Predicted time to bring an output of the graph, which the module computed, to the host's memory."""
        return self.transfer_seconds(t)

    @abstractmethod
    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append the steps that compute `ops`, in order; `steps` has the graph's tensors by name.

        Raises `Refusal` for operators that it cannot run.
        """


@dataclass(frozen=True)
class Target:
    """Modules in order of preference: of two that are equally fast the first runs an operator.

    Raises `InputError` if two have the same name.
    """

    name: str
    modules: tuple[ExecModule, ...]

    def __post_init__(self) -> None:
        names = [m.name for m in self.modules]
        if len(set(names)) < len(names):
            raise InputError(f"target {self.name!r}: two modules have the same name, of {', '.join(names)}")

    @property
    def kernels(self) -> tuple[Alternative, ...]:
        """The kernels that its modules add to the table."""
        return tuple(each for module in self.modules for each in module.kernels)
