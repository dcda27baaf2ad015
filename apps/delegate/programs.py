"""Programs of the delegate's parts: the plan of a network, and each of its parts compiled. This module needs TVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...compiler import graph as g
from ...compiler.frontend.tflite.file import ModelFile
from ...compiler.network import compile_for, launch_cycles
from ...compiler.target.host import HostModel
from ...hw.config import Config
from ...hw.errors import InputError, UnsupportedError
from .kernel import Program
from .native import Given
from .partition import ends, grouped, import_part


def compiled(file: ModelFile, given: Given, cfg: Config, runtime: str) -> Program:
    """The program of a part. Raises `UnsupportedError` where nothing can run an operator of it."""
    graph = import_part(file, given, runtime)
    found = compile_for(graph, cfg)
    inputs = [k for k in given.inputs if file.tensors[k].data is None]
    return Program(
        given,
        found.executable,
        tuple(zip(inputs, (t.name for t in graph.inputs), strict=True)),
        tuple(zip(given.outputs, (t.name for t in graph.outputs), strict=True)),
        graph.macs,
        launch_cycles(found.executable),
        found.host_seconds(HostModel()),
    )


def on_host(file: ModelFile, number: int) -> float | None:
    """Seconds of a node on the modelled Cortex-A9, None where nothing is known of its operator.

    Changes of layout are left out: they are the importer's, not the interpreter's.
    """
    try:
        graph = import_part(file, ends(file, [number]), "litert")
    except (UnsupportedError, InputError):
        return None
    ops = [op for op in graph.ops if not (isinstance(op, g.Transpose) and op.relayout)]
    return sum(map(HostModel().seconds, ops))


@dataclass
class Planner:
    """Makes the parts of a network: those of `min_macs` multiply-accumulates or more that start the accelerator.

    `refused` are the reasons of all other nodes, by number.
    """

    file: ModelFile
    cfg: Config
    runtime: str
    min_macs: int
    every: bool
    refused: dict[int, str]

    def programs(self) -> list[Program]:
        """The programs of the parts; a part that falls away changes the others, which are made again."""
        known: dict[Given, Program | str] = {}
        while True:
            taken = [n for n in range(len(self.file.nodes)) if n not in self.refused]
            parts = [ends(self.file, group, every=self.every) for group in grouped(self.file, taken)]
            for part in parts:
                if part not in known:
                    known[part] = self._program(part)
            if not (wrong := dict(self._refusals(parts, known))):
                return [one for part in parts if isinstance(one := known[part], Program)]
            self.refused |= wrong

    def _refusals(self, parts: list[Given], known: dict[Given, Program | str]) -> Iterator[tuple[int, str]]:
        for part in parts:
            if isinstance(why := known[part], str):
                yield from ((n, why) for n in part.nodes)

    def _program(self, part: Given) -> Program | str:
        """The program of a part, or why it is left to the interpreter."""
        try:
            found = compiled(self.file, part, self.cfg, self.runtime)
        except (UnsupportedError, InputError) as exc:
            if isinstance(exc.__context__, ImportError):
                raise  # a package is missing: no fault of the network
            return str(exc).removeprefix(f"{self.file.path}: ")
        if not found.launches:
            return "nothing of its part would run on the accelerator"
        if found.macs < self.min_macs:
            return f"its part has {found.macs:,} multiply-accumulates, fewer than min_macs = {self.min_macs:,}"
        return found
