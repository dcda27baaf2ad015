"""The host CPU as a module of a target: its times by a model of a Cortex-A9, and its passes.

`HostModel`: 2.5 cycles per multiply-accumulate is the lower end of published runs of scalar int8 C (2.5 to 8.2);
MobileNetV1's depthwise and other layers took 5.7 on one core of a PYNQ-Z1 at 650 MHz. Fields without published figures
are marked as assumed.

`tabled` replaces consecutive element-wise operators by one table of 256 or 256 x 256 values. It applies where the host
must compute one of them: float32 functions, and int8 operators of ranks that the accelerator does not have. Operators
of the accelerator join such a table if that brings no more tensors to the host. `scaled_sums` makes one step of what
follows the integer sums of a dynamically quantised layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import Any

import numpy as np

from ...runtime.hostops import STAGES
from .. import graph as g
from ..graph.operators import BYTES
from ..graph.rewrite import Producers, Rule, rewrite, without_unread
from .module import ExecModule, Memory, Pattern
from .steps import Steps


@dataclass(frozen=True)
class HostModel:
    """Cycles of a CPU at `clock` Hz: per multiply-accumulate, per byte read or written, per operator."""

    clock: float = 650e6
    mac: float = 2.5
    depthwise_mac: float = 5.7
    byte: float = 4.0  # assumed: element-wise integer arithmetic, widened to 32 bits
    moved_byte: float = 1.5  # assumed: change of layout; int8 for uint8 and back, one exclusive or per word
    softmax_byte: float = 150.0  # assumed: exponential and division in fixed point, per byte read or written
    float_mac: float = 4.0  # assumed: the VFP issues one float32 multiply-accumulate in two cycles, operands loaded
    float_value: float = 60.0  # assumed: a function of one float32 value
    dispatch: float = 3000.0  # assumed: call of one operator

    def seconds(self, op: g.Operator) -> float:
        """Predicted time of one operator."""
        return (self._cycles(op) + self.dispatch) / self.clock

    @singledispatchmethod
    def _cycles(self, op: g.Operator) -> float:
        """Cycles of the arithmetic, and of the bytes read and written."""
        return self.mac * op.macs + self.byte * _nbytes(op)

    @_cycles.register(g.Movement)
    @_cycles.register(g.Recode)
    @_cycles.register(g.RecodeImage)
    def _moves(self, op: g.Operator) -> float:
        return self.moved_byte * _nbytes(op)

    @_cycles.register(g.Write)
    @_cycles.register(g.WriteTokens)
    def _written(self, op: g.Write | g.WriteTokens) -> float:
        return self.moved_byte * 2 * op.inputs[1].nbytes  # a cache is written in place

    @_cycles.register(g.Cells)
    def _cells(self, op: g.Cells) -> float:
        return self.mac * op.macs + self.byte * _nbytes(op) + self.softmax_byte * op.functions

    @_cycles.register(g.IntegerConv2d)
    @_cycles.register(g.Linear)
    def _layer(self, op: g.Linear | g.IntegerConv2d) -> float:
        mac = self.depthwise_mac if op.depthwise else self.mac
        return mac * op.macs + self.byte * op.output.nbytes

    @_cycles.register(g.FloatOperator)
    def _reals(self, op: g.FloatOperator) -> float:
        return self.float_mac * op.macs + self.float_value * op.output.nbytes / 4

    @_cycles.register(g.Softmax)
    def _softmax(self, op: g.Softmax) -> float:
        """Cycles of the kernel (runtime/hostops/reductions.py), which reads exponentials from a table made once.

        Three passes over int8 values: the largest; the sum of table entries, int32; entries, products and results. Each
        row needs one reciprocal, as long as an exponential and a division of one value read and one written.
        """
        values = math.prod(op.x.shape)
        touched = values * (1 + 2 * (1 + 4)) + op.output.nbytes
        return self.byte * touched + 2 * self.softmax_byte * values / op.x.shape[op.axis]

    def moved_seconds(self, nbytes: int) -> float:
        """Predicted time of a change of layout that reads and writes `nbytes`."""
        return (self.moved_byte * nbytes + self.dispatch) / self.clock


def _nbytes(op: g.Operator) -> int:
    return sum(t.nbytes for t in op.tensors)


def tabled(graph: g.Graph) -> g.Graph:
    """Element-wise operators in a row become one table, where the host runs them.

    Outputs and next values of states stay, and so do operators with a float32 value that can be NaN: quantising that
    is an error at run time, which a table would hide.
    """
    finder = _Finder(graph)
    found: dict[str, list[g.Operator]] = {}
    inside: set[str] = set()
    for op in reversed(graph.ops):
        if op.name in inside or (tree := finder.tree(op)) is None:
            continue
        try:
            found[op.name] = _written(tree)
        except _NoNumberError:
            continue
        inside |= tree.ops.keys()
    ops = [new for op in graph.ops for new in found.get(op.name, [] if op.name in inside else [op])]
    return replace(graph, ops=tuple(ops))


class _NoNumberError(Exception):
    """A table would hold NaN."""


@dataclass
class _Tree:
    """Operators that end with `root`, by name; `leaves` are their inputs of bytes, with the movements after each."""

    root: g.Operator
    ops: dict[str, g.Operator] = field(default_factory=dict)
    leaves: dict[str, tuple[g.Tensor, tuple[g.Operator, ...]]] = field(default_factory=dict)

    @property
    def has_floats(self) -> bool:
        """True if an operator computes in float32."""
        return any("float32" in {t.dtype for t in op.tensors} for op in self.ops.values())

    @property
    def pays(self) -> bool:
        """True if one table replaces several operators, at least one of which the host must run."""
        works = [op for op in self.ops.values() if not op.rearranges]
        return len(works) > 1 and any(map(_on_host, works))


class _Finder:
    """Finds the trees of a graph that become tables."""

    def __init__(self, graph: g.Graph):
        self.producers = {op.output.name: op for op in graph.ops}
        self.wanted = {t.name for t in graph.wanted}
        self.readers: dict[str, set[str]] = {}
        hosted: set[str] = set()  # results of the host, and of operators that a tree could join to it
        for op in graph.ops:
            for t in op.inputs:
                self.readers.setdefault(t.name, set()).add(op.name)
            if _on_host(op) or (_joinable(op) and any(t.name in hosted for t in op.inputs)):
                hosted.add(op.output.name)
        self.roots = {op.name for op in graph.ops if op.output.name in hosted and op.output.dtype == "int8"}

    def tree(self, root: g.Operator) -> _Tree | None:
        """The largest tree that ends with `root` and pays; None without one."""
        if root.name not in self.roots or root.rearranges or not _joinable(root):
            return None
        with_constants = self._largest(root, True)
        if with_constants is not None and with_constants.pays and with_constants.has_floats:
            return with_constants
        found = self._largest(root, False)
        return found if found is not None and found.pays else None

    def _largest(self, root: g.Operator, constants: bool) -> _Tree | None:
        """The largest tree; with `constants` an operator of the accelerator may join a constant tensor to it."""
        tree = _Tree(root)
        if not self._extended(tree, root, constants):
            return None
        while any(self._extended(tree, self._maker(tree, name), constants) for name in tree.leaves):
            pass
        return tree

    def _maker(self, tree: _Tree, name: str) -> g.Operator | None:
        """The operator that computes leaf `name`; None if it cannot become part of the tree."""
        op = self.producers.get(name)
        inside = name not in self.wanted and self.readers[name] <= tree.ops.keys()
        return op if inside and op is not None and _joinable(op) else None

    def _extended(self, tree: _Tree, op: g.Operator | None, constants: bool) -> bool:
        """Add `op`, and the operators that compute its inputs unless these are bytes. False, and no change, if one of
        them cannot become part of the tree."""
        leaves, added = tree.leaves, list[str]()
        while op is not None and (found := _grown(leaves, op, constants)) is not None:
            leaves = found
            tree.ops[op.name] = op
            added.append(op.name)
            name = next((name for name, (t, _) in leaves.items() if t.dtype not in BYTES), None)
            if name is None:
                tree.leaves = leaves
                return True
            op = self._maker(tree, name)
        for name in added:
            del tree.ops[name]
        return False


_Leaves = dict[str, tuple[g.Tensor, tuple[g.Operator, ...]]]


def _grown(known: _Leaves, op: g.Operator, constants: bool) -> _Leaves | None:
    """The leaves after `op` joins the tree in place of its output; None if it cannot."""
    leaves = {name: leaf for name, leaf in known.items() if name != op.output.name}
    before, (_, moves) = max(1, len(known)), known.get(op.output.name, (op.output, ()))
    moves = (op, *moves) if op.rearranges else moves
    for t in op.inputs:
        if _number(t, op):
            continue
        if moves and not op.rearranges and t.shape != op.output.shape:
            return None  # it is broadcast, and the movements apply to the broadcast shape
        if leaves.setdefault(t.name, (t, moves))[1] != moves:
            return None
    if len(leaves) > _MOST_LEAVES or (len(leaves) > before and not _joins(op, constants)):
        return None
    return leaves


def _number(t: g.Tensor, op: g.Operator) -> bool:
    """True of a constant that is one number, by which the output of `op` gets no other shape."""
    if t.data is None or t.data.size == 1:
        return t.data is not None
    others = [other.shape for other in op.inputs if other is not t]
    return bool((t.data == t.data.flat[0]).all()) and np.broadcast_shapes(*others) == op.output.shape


def _joins(op: g.Operator, constants: bool) -> bool:
    """True if `op` may join two tensors: the host computes it, or one of them is a constant."""
    return _on_host(op) or (constants and any(t.data is not None for t in op.inputs))


def _on_host(op: g.Operator) -> bool:
    """True if no configuration of the accelerator computes `op`."""
    return any(t.dtype != "int8" for t in op.tensors) or len(op.output.shape) not in _ON_DEVICE


def _joinable(op: g.Operator) -> bool:
    """True if `op` may be part of a tree: it maps single values, or only reorders them."""
    known = all(t.data is None or t.dtype == "int8" or _number(t, op) for t in op.inputs)
    narrow = {t.dtype for t in op.tensors} <= {*BYTES, "float32"}
    return op.rearranges or (op.elementwise and op.tabled and known and narrow)


def _written(tree: _Tree) -> list[g.Operator]:
    """The operators that replace the tree: a table with the name of its root, and movements before or after it."""
    root, leaves = tree.root, [*tree.leaves.values()]
    constants = [k for k, (t, _) in enumerate(leaves) if t.data is not None]
    free = [k for k in range(len(leaves)) if k not in constants]
    table = _table(tree, [t for t, _ in leaves])
    if len(leaves) == 1:
        (x, moves), ops = leaves[0], list[g.Operator]()
        if x.dtype == "uint8":
            ops.append(g.Recode(f"{root.name}.bytes", (x,), _like(x, f"{root.name}.bytes", dtype="int8")))
            x = ops[-1].output
        y = replace(root.output, name=f"{root.name}.table", shape=x.shape) if moves else root.output
        return [*ops, g.Lookup(root.name, (x,), y, "table", table), *_moved(root.name, y, moves, root.output)]
    behind: tuple[g.Operator, ...] = ()
    if constants and len(free) == 1 and len(moves := leaves[free[0]][1]) == 1 and isinstance(moves[0], g.Transpose):
        behind = moves
    ops, operands = [], []
    for k, (t, moves) in enumerate(leaves):
        if t.data is not None:
            operands.append(_constant(t, moves, behind, f"{root.name}.{k}"))
            continue
        ops += _moved(f"{root.name}.{k}", t, () if behind else moves)
        operands.append(ops[-1].output if ops and moves and not behind else t)
    shape = np.broadcast_shapes(*(t.shape for t in operands))
    y = replace(root.output, name=f"{root.name}.table", shape=shape) if behind else root.output
    return [*ops, g.PairLookup(root.name, tuple(operands), y, table), *_moved(root.name, y, behind, root.output)]


def _like(t: g.Tensor, name: str, **facts: Any) -> g.Tensor:
    return replace(t, name=name, data=None, **({"zero_point": t.zero_point - 128} if "dtype" in facts else {}), **facts)


def _moved(name: str, t: g.Tensor, moves: Sequence[g.Operator], last: g.Tensor | None = None) -> list[g.Operator]:
    """The movements `moves` applied to `t`; the result is `last`, if that is given."""
    ops: list[g.Operator] = []
    for k, move in enumerate(moves):
        label = f"{name}.move{k}"
        y = last if last is not None and k == len(moves) - 1 else _like(t, label)
        ops.append(replace(move, name=label, inputs=(t,), output=replace(y, shape=move.output.shape)))
        t = ops[-1].output
    return ops


def _constant(t: g.Tensor, moves: Sequence[g.Operator], behind: Sequence[g.Operator], name: str) -> g.Tensor:
    """The constant `t` after `moves` and the inverse of `behind`, which is one transposition or nothing."""
    assert t.data is not None
    data = t.data
    for move in moves:
        data = move.moved(data)
    for move in behind:
        assert isinstance(move, g.Transpose)
        data = data.reshape((1,) * (len(move.axes) - data.ndim) + data.shape).transpose(np.argsort(move.axes))
    return replace(t, name=name, shape=data.shape, data=np.ascontiguousarray(data))


def _table(tree: _Tree, leaves: Sequence[g.Tensor]) -> np.ndarray:
    """int8 (256,) or (256, 256): the root's results for all values of the leaves, in ascending order.

    Raises `_NoNumberError`.
    """
    known: dict[str, np.ndarray] = {}
    for k, t in enumerate(leaves):
        values = np.arange(256).astype(np.uint8) if t.dtype == "uint8" else np.arange(-128, 128).astype(np.int8)
        known[t.name] = values.reshape([-1 if k == axis else 1 for axis in range(len(leaves))])
    pending, producers = [tree.root], {op.output.name: op for op in tree.ops.values()}
    while pending:
        op = pending[-1]
        if missing := [producers[t.name] for t in op.inputs if t.data is None and t.name not in known]:
            pending += missing
            continue
        known[op.output.name] = _value(op, known, len(leaves))
        pending.pop()
    shape = (256,) * len(leaves)
    return np.ascontiguousarray(np.broadcast_to(known[tree.root.output.name], shape))


def _value(op: g.Operator, known: Mapping[str, np.ndarray], rank: int) -> np.ndarray:
    """Result of `op` for `known` values, of `rank` dimensions."""
    arrays = [
        known[t.name] if t.name in known else np.asarray(t.data).reshape(-1)[:1].reshape((1,) * rank) for t in op.inputs
    ]
    if op.rearranges:
        return arrays[0]
    if op.output.dtype == "int8" and np.isnan(arrays[0]).any():
        raise _NoNumberError
    for call in op.calls("double"):
        arrays = [call(*arrays)]
    return arrays[0]


def scaled_sums(graph: g.Graph) -> g.Graph:
    """Integer sums that are scaled, added to a bias and clamped in float32 are one operator."""

    def binary(op: g.FloatBinary, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        for t, other in (op.inputs, op.inputs[::-1]):
            before = producers.get(t.name)
            if before is None or readers.only(before) is None or op.output.shape != t.shape:
                continue
            if op.function == "Mul" and isinstance(before, g.Cast):
                less = producers.get(before.x.name)
                if isinstance(less, g.SubtractZeroPoint) and readers.only(less) is not None and _along(other, less):
                    return [g.ScaleSums(op.name, (*less.inputs, other), op.output, less.sums, less.axis)]
            if isinstance(before, g.ScaleSums) and op.function == "Add" and before.extends and _along(other, before):
                return [replace(before, name=op.name, inputs=(*before.inputs, other), output=op.output)]
        return None

    def clamped(op: g.FloatFunction, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        before = producers.get(op.x.name)
        if op.function != "Relu" or not isinstance(before, g.ScaleSums) or readers.only(before) is None:
            return None
        return [replace(before, name=op.name, output=op.output, relu=True)]

    found = rewrite(graph, Rule(g.FloatBinary, binary), Rule(g.FloatFunction, clamped))
    return graph if found is graph else without_unread(found)


def _along(t: g.Tensor, op: g.SubtractZeroPoint | g.ScaleSums) -> bool:
    """True if `t` is one number, or one for each index of the axis of `op`."""
    sizes = (1,) * (len(op.output.shape) - len(t.shape)) + t.shape
    return all(n == 1 or k == op.axis for k, n in enumerate(sizes))


def _without_kernel(op: g.Operator) -> str:
    return "" if op.kernels() else "it has no kernel"


class HostCpu(ExecModule):
    """The CPU of the system. It runs every operator that has a host kernel (compiler/graph/host_calls.py)."""

    name = "host"
    patterns = (Pattern("operator with a kernel", (g.Operator,), _without_kernel),)
    transformations = (tabled, scaled_sums)
    memories = (Memory("DRAM", 512 << 20, 8.0, ("activations", "weights")),)

    def __init__(self, model: HostModel | None = None):
        self.model = model or HostModel()

    def seconds(self, ops: Sequence[g.Operator]) -> float:
        """Predicted time on the modelled CPU."""
        return sum(self.model.seconds(op) for op in ops)

    def transfer_seconds(self, t: g.Tensor) -> float:
        """0: operands are in its memory, in plain layout."""
        return 0.0

    def joined_seconds(self, op: g.Operator) -> float:
        """A call, where the steps of `op` move values or compute each by itself (steps.py)."""
        joins = all(kernel.name in STAGES for kernel in op.kernels()) and len(op.inputs) == 1
        return self.model.dispatch / self.model.clock if joins else 0.0

    def generate(self, steps: Steps, ops: Sequence[g.Operator]) -> None:
        """Append one or two host steps per operator."""
        for op in ops:
            steps.kernels(op)


_ON_DEVICE = (2, 4)  # ranks of the tensors that the accelerator computes
_MOST_LEAVES = 2
