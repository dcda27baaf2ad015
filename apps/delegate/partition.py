"""The partitions of a delegate: nodes of a .tflite file that it takes, with reasons for the others, and their programs.

A part is cut out of the file: its operators, and the tensors at its ends. It goes through the importer and the compiler
as a network does; nothing of an operator is read from the interpreter. Compiling needs TVM, which is imported at the
first call: saved programs run without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ...compiler import graph as g
from ...compiler.frontend.tflite.file import OPERATOR_NAMES, ModelFile, Subgraph
from ...compiler.frontend.tflite.importer import import_file
from ...hw.config import Config
from ...hw.errors import InputError, UnsupportedError
from ..partition import Groups, partition
from .abi import Context, Given, array, ints
from .kernel import Program

STATEFUL = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_TAKEN = ("INT8", "UINT8", "INT16", "INT32")  # types of tensors


def check_claim(claim: Collection[str] | None) -> frozenset[str] | None:
    """The operators to take, None for all. Raises `InputError` for a name that no operator has."""
    if claim is None:
        return None
    names = frozenset([claim] if isinstance(claim, str) else claim)
    if not names:
        raise InputError("claim names no operator; leave it out to take all, or name some as CONV_2D")
    for name in sorted(names - OPERATOR_NAMES, key=str):
        raise InputError(f"claim: {name!r} is no operator of TFLite; name them as CONV_2D or FULLY_CONNECTED")
    return names


def cut(file: ModelFile, given: Given) -> ModelFile:
    """The part of a file; where it needs a constant, this stays one."""
    inputs = tuple(k for k in given.inputs if k >= 0 and file.tensors[k].data is None)
    nodes = [file.nodes[n] for n in given.nodes]
    return replace(file, tensors=list(file.tensors), nodes=nodes, inputs=inputs, outputs=given.outputs)


def import_part(file: ModelFile, given: Given, runtime: str) -> g.Graph:
    """The graph of a part, with the roundings of `runtime`. Raises `UnsupportedError`.

    LiteRT's dense layers round once, all others twice; TensorFlow Lite Micro's round twice.
    """
    graph = import_file(cut(file, given))
    if runtime == "tflm":
        return graph
    ops = (replace(op, contract="single") if isinstance(op, g.QDense) else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def ends(file: ModelFile, nodes: Iterable[int], *, every: bool = False) -> Given:
    """`nodes` with the tensors that they need from others, and those that others, or the network's user, need.

    With `every` the outputs are all that they compute.
    """
    nodes = tuple(sorted(nodes))
    made = [k for n in nodes for k in file.nodes[n].outputs]
    needed = dict.fromkeys(k for n in nodes for k in file.nodes[n].inputs)
    inputs = [k for k in needed if k >= 0 and k not in made and file.tensors[k].data is None]
    inside = set(nodes)
    read = {k for n, node in enumerate(file.nodes) if n not in inside for k in node.inputs} | set(file.outputs)
    return Given(nodes, tuple(inputs), tuple(k for k in made if every or k in read))


def needs_of(file: ModelFile) -> list[list[int | None]]:
    """The nodes that each node of a file reads; None where no node makes a tensor, as in a damaged file."""
    ready = {k for k, info in enumerate(file.tensors) if info.data is not None or info.variable} | {-1, *file.inputs}
    maker = {k: n for n, node in enumerate(file.nodes) for k in node.outputs}
    return [[maker.get(k) for k in node.inputs if k not in ready] for node in file.nodes]


def refusal(file: ModelFile, number: int, claim: frozenset[str] | None) -> str:
    """Why the delegate does not take a node; empty where it can."""
    node = file.nodes[number]
    if claim is not None and node.kind not in claim:
        return f"not among the claimed operators, {', '.join(sorted(claim))}"
    tensors = [file.tensors[k] for k in (*node.inputs, *node.outputs) if k >= 0]
    if node.kind in STATEFUL or any(t.variable for t in tensors):
        return "keeps a variable, which stays with the interpreter"
    computed = [t for t in tensors if t.data is None]
    for t in computed:
        if t.type not in _TAKEN:
            return f"has tensor {t.name!r} of type {t.type.lower()}; {', '.join(_TAKEN).lower()} are taken"
    try:
        import_file(cut(file, ends(file, [number])))
    except (UnsupportedError, InputError) as exc:
        return str(exc).removeprefix(f"{file.path}: ")
    return ""


def is_the_files(file: ModelFile, context: Context, nodes: Collection[int]) -> bool:
    """Whether the interpreter's `nodes` are the file's main graph; False for another of its subgraphs.

    Raises `InputError` for nodes, constants or shapes that are not in the file.
    """
    found = _other_operator(file, context, nodes) or _other_tensor(file, context, nodes)
    if found and any(not _other_operator(part, context, nodes) for part in file.others):
        return False  # its shapes may change while the network runs
    if found:
        raise InputError(
            f"the interpreter has not the network of {file.path}: {found}; give the delegate the same file, and keep "
            "its shapes"
        )
    return True


def _other_operator(part: Subgraph, context: Context, nodes: Collection[int]) -> str:
    """The first operator in which the interpreter and a subgraph differ, as a reason; empty where all agree."""
    for n in nodes:
        node, registration = context.node(n)
        mine = part.nodes[n] if n < len(part.nodes) else None
        its = registration.builtin_code, tuple(ints(node.inputs)), tuple(ints(node.outputs))
        if mine is None or its != (mine.code, mine.inputs, mine.outputs):
            return f"operator {n} is another"
    return ""


def _other_tensor(part: Subgraph, context: Context, nodes: Collection[int]) -> str:
    """The first tensor of `nodes` of which the interpreter has another form or values; empty where there is none."""
    for k in sorted({k for n in nodes for k in (*part.nodes[n].inputs, *part.nodes[n].outputs) if k >= 0}):
        info, t = part.tensors[k], context.tensor(k)
        if (shape := tuple(ints(t.dims))) != info.shape:
            return f"tensor {info.name!r} has shape {shape}, programs are for {info.shape} of the file"
        if info.scale.size == 1 and (t.scale, t.zero_point) != (info.scale[0], info.zero_point[0]):
            return f"tensor {info.name!r} has another scale or zero point"
        if (data := info.data) is not None and t.data and t.bytes == data.nbytes:
            theirs = array(t, data.dtype, info.shape)
            if theirs.tobytes() != data.tobytes():
                return f"constant {info.name!r} has other values"
    return ""


def compiled(file: ModelFile, given: Given, cfg: Config, runtime: str) -> Program:
    """The program of a part. Raises `UnsupportedError` where nothing can run an operator of it."""
    from ...compiler.network import compile_for, launch_cycles
    from ...compiler.target.host import HostModel

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
    from ...compiler.target.host import HostModel

    try:
        graph = import_part(file, ends(file, [number]), "litert")
    except (UnsupportedError, InputError):
        return None
    ops = [op for op in graph.ops if not (isinstance(op, g.Transpose) and op.relayout)]
    return sum(map(HostModel().seconds, ops))


@dataclass
class Planner:
    """Makes the parts of a network; each starts the accelerator and has `min_macs` multiply-accumulates or more.

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
        needs, nodes = needs_of(self.file), range(len(self.file.nodes))

        def compiled_groups(groups: Groups[int]) -> dict[int, Program | str]:
            parts = {k: ends(self.file, group, every=self.every) for k, (taken, group) in enumerate(groups) if taken}
            for part in parts.values():
                if part not in known:
                    known[part] = self._program(part)
            return {k: known[part] for k, part in parts.items()}

        def refused(group: list[int], why: str) -> None:
            self.refused |= dict.fromkeys(group, why)

        taken = [n for n in nodes if n not in self.refused]
        _, parts = partition(nodes, lambda n, _: needs[n], taken, compiled_groups, refused)
        return list(parts.values())

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
