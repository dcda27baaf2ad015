"""Operators whose results no 8 bits hold: squares, roots and exponentials with the arithmetic around them.

A layer norm, a softmax or a GELU that a file composes of elementary operators has such results inside: a variance, its
root, a cube, a sum of exponentials. They spread over so many magnitudes that one scale leaves nothing of the small
ones. The whole expression stays in float; what it reads and what it gives are quantised.

How a result spreads is told by its dimension: powers of the tensors that it is computed from, as a variance of x has
x to the power of 2. Powers of 0 and 1 are harmless, and dividing x by its deviation ends the expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .meter import Node

_BOUNDED = frozenset(("Tanh", "Sigmoid", "Erf", "Cos", "Sin"))
_ROOTS = frozenset(("Sqrt", "Rsqrt", "Reciprocal", "Pow", "Exp", "ReduceL2", "ReduceSumSquare", "Log"))
_SUMS = frozenset(("Add", "Sub", "Max", "Min", "Where"))
_PRODUCTS = frozenset(("Mul", "Div", "Square"))
_UNARY = frozenset(
    """Abs Cast Expand Identity Neg ReduceMax ReduceMean ReduceMin ReduceSum Reshape Softplus Squeeze
    Unsqueeze""".split()
)
_ARITHMETIC = _BOUNDED | _ROOTS | _SUMS | _PRODUCTS | _UNARY
_SCALE = {"Sqrt": 0.5, "Rsqrt": -0.5, "Reciprocal": -1.0, "Square": 2.0, "ReduceSumSquare": 2.0}
# names of .tflite files that are not ONNX's in capitals
_TFLITE = {"Logistic": "Sigmoid", "Sum": "ReduceSum", "Mean": "ReduceMean", "Maximum": "Max", "Minimum": "Min"}
_TFLITE |= {"ExpandDims": "Unsqueeze", "SelectV2": "Where", "BroadcastTo": "Expand"}
Dimension = Mapping[str, float]  # tensor -> power


def wide(nodes: Sequence[Node], outputs: Iterable[str]) -> set[str]:
    """Names of the operators that stay in float; `nodes` are in order, `outputs` the tensors that the network gives."""
    computed = {name for node in nodes for name in node.outputs}
    kinds = [_kind(node.kind) for node in nodes]
    dimensions, spread, inside = dict[str, Dimension](), set[str](), set[int]()
    for k, node in enumerate(nodes):
        operands = [name for name in node.inputs if name in computed]
        if not operands or kinds[k] not in _ARITHMETIC:
            continue
        (result, *_) = node.outputs
        known = [dimensions.get(name, {name: 1.0}) for name in operands]
        dimensions[result] = found = _dimension(kinds[k], result, known, operands[0] == node.inputs[0])
        harmless = all(power in (0, 1) for power in found.values())
        carried = len(operands) == 1 and kinds[k] not in _BOUNDED | {"Log"} and operands[0] in spread
        if not harmless or carried or (kinds[k] in _ROOTS and kinds[k] != "Log"):
            spread.add(result)
        if result in spread or spread.intersection(operands):
            inside.add(k)
    return {nodes[k].name for k in _with_operands(nodes, kinds, inside, computed, set(outputs))}


def _dimension(kind: str, result: str, known: Sequence[Dimension], first_is_computed: bool) -> Dimension:
    """The dimension of a result from those of its computed operands."""
    if kind in _BOUNDED:
        return {}
    if kind in ("Log", "Pow"):
        return {result: 1.0}
    if kind == "Exp":
        return {result: 2.0}
    if kind in _SUMS:
        if any(one.keys() != known[0].keys() for one in known):
            return {result: max((power for one in known for power in one.values()), default=1.0)}
        return {name: max(one[name] for one in known) for name in known[0]}
    if kind in ("Mul", "Div"):
        total = dict[str, float]()
        for k, one in enumerate(known):
            sign = -1.0 if kind == "Div" and (k or not first_is_computed) else 1.0
            for name, power in one.items():
                total[name] = total.get(name, 0.0) + sign * power
        return {name: power for name, power in total.items() if power}
    return {name: power * _SCALE.get(kind, 1.0) for name, power in known[0].items()}


def _with_operands(
    nodes: Sequence[Node], kinds: Sequence[str], inside: set[int], computed: set[str], given: set[str]
) -> set[int]:
    """`inside`, and what such expressions alone read, as long as they read more than one tensor from outside."""
    readers: dict[str, set[int]] = {}
    for k, node in enumerate(nodes):
        for name in node.inputs:
            readers.setdefault(name, set()).add(k)
    producer = {name: k for k, node in enumerate(nodes) for name in node.outputs}
    total = set(inside)
    for part in _parts(nodes, inside, readers):
        while True:
            read = {name for k in part for name in nodes[k].inputs if name in computed and producer[name] not in part}
            candidates = {
                producer[name]
                for name in read
                if kinds[producer[name]] in _ARITHMETIC and readers[name] <= part and name not in given
            }
            if len(read) < 2 or not candidates:
                break
            part.add(max(candidates))  # the last one first: what they all come from remains
        total |= part
    return total


def _parts(nodes: Sequence[Node], inside: set[int], readers: Mapping[str, set[int]]) -> list[set[int]]:
    """`inside` in parts that no tensor connects."""
    parts: list[set[int]] = []
    for k in sorted(inside):
        linked = {k}.union(*(readers.get(name, set()) & inside for name in nodes[k].outputs))
        joined = [part for part in parts if part & linked]
        parts = [part for part in parts if not part & linked] + [linked.union(*joined)]
    return parts


def _kind(kind: str) -> str:
    """ONNX's name of an operator."""
    if not kind.isupper():
        return kind
    name = "".join(part.capitalize() for part in kind.split("_"))
    return _TFLITE.get(name, name)
