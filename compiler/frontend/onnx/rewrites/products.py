"""Sums of products along named dimensions, running sums and triangles of ONNX, as products of matrices."""

from __future__ import annotations

import math
import string

import numpy as np
from onnx import TensorProto

from ..nodes import Node, Reader, Rewrite
from .chain import Chain, as_float


def _einsum(reader: Reader, node: Node) -> list[Node] | None:
    """One or two operands and a result of letters, none twice in one of them, and no size of 1 in another's place."""
    shapes = [reader.shapes[t] for t in node.inputs]
    letters = _letters(node.attrs["equation"].decode(), [len(shape) for shape in shapes])
    if letters is None or len(shapes) > 2 or not letters[-1]:
        return None
    *terms, result = letters
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes):
        for letter, n in zip(term, shape):
            if sizes.setdefault(letter, n) != n:
                return None
    chain = Chain(reader, node)
    if len(terms) == 1:
        y, found = _summed(chain, node.inputs[0], terms[0], result)
    else:
        alone = [_summed(chain, t, term, other + result) for t, term, other in zip(node.inputs, terms, terms[::-1])]
        y, found = _product(chain, alone, result, sizes)
    chain.add("Transpose", y, perm=[found.index(letter) for letter in result])
    return chain.finish()


def _letters(equation: str, ranks: list[int]) -> list[str] | None:
    """The letters of each operand and of the result, those that an ellipsis stands for included."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        return None
    counts = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    if any(count < 0 or (count > 0 and "..." not in term) for term, count in zip(terms, counts)):
        return None
    free = [letter for letter in string.ascii_letters if letter not in equation][: max(0, *counts)]
    whole = [term.replace("...", "".join(free[len(free) - count :])) for term, count in zip(terms, counts)]
    if not arrow:
        named = sorted(letter for letter in set("".join(whole)) - set(free) if "".join(whole).count(letter) == 1)
        right = "".join(("..." if free else "", *named))
    found = [*whole, right.replace("...", "".join(free))]
    return found if all(len(set(term)) == len(term) for term in found) else None


def _summed(chain: Chain, x: str, term: str, kept: str) -> tuple[str, str]:
    """`x` summed along the letters that are not `kept`, and the letters that remain."""
    axes = [k for k, letter in enumerate(term) if letter not in kept]
    return chain.add("ReduceSum", x, axes=axes, keepdims=0) if axes else x, "".join(c for c in term if c in kept)


def _product(chain: Chain, operands: list[tuple[str, str]], result: str, sizes: dict[str, int]) -> tuple[str, str]:
    """A product of matrices, and its letters: those of both, of the first and of the second operand."""
    (_, first), (_, second) = operands
    both = "".join(c for c in first if c in second and c in result)
    summed = "".join(c for c in first if c in second and c not in result)
    rows, columns = ("".join(c for c in term if c not in both + summed) for term in (first, second))
    matrices = []
    for (x, term), parts in zip(operands, ((both, rows, summed), (both, summed, columns))):
        turned = chain.add("Transpose", x, perm=[term.index(c) for c in "".join(parts)])
        matrices.append(chain.reshape(turned, *(math.prod(sizes[c] for c in part) for part in parts)))
    found = both + rows + columns
    return chain.reshape(chain.add("MatMul", *matrices), *(sizes[c] for c in found)), found


def _running_sum(reader: Reader, node: Node) -> list[Node] | None:
    axis, shape = reader.value(node.inputs[1]), reader.shapes[node.inputs[0]]
    if axis is None or reader.types[node.inputs[0]] != TensorProto.FLOAT:
        return None
    place = int(axis.reshape(-1)[0]) % len(shape)
    taken = np.triu(np.ones((shape[place], shape[place]), np.float32), node.attrs.get("exclusive", 0))
    perm = [*(k for k in range(len(shape)) if k != place), place]
    chain = Chain(reader, node)
    y = chain.add("MatMul", chain.add("Transpose", node.inputs[0], perm=perm), as_float(_turned(taken, node)))
    chain.add("Transpose", y, perm=np.argsort(perm).tolist())
    return chain.finish()


def _turned(taken: np.ndarray, node: Node) -> np.ndarray:
    return np.ascontiguousarray(taken[::-1, ::-1]) if node.attrs.get("reverse", 0) else taken


def _triangle(reader: Reader, node: Node) -> list[Node] | None:
    """The upper or the lower triangle of matrices."""
    k, shape = reader.value(node.inputs[1]) if node.input(1) else np.zeros(1), reader.shapes[node.inputs[0]]
    if k is None or reader.types[node.inputs[0]] != TensorProto.FLOAT:
        return None
    cut = np.triu if node.attrs.get("upper", 1) else np.tril
    chain = Chain(reader, node)
    chain.add("Mul", node.inputs[0], cut(np.ones(shape[-2:], np.float32), int(k.reshape(-1)[0])))
    return chain.finish()


def _vectors(reader: Reader, node: Node) -> list[Node] | None:
    """A product of matrices one of which is a row or a column."""
    x, y = node.inputs
    shapes = reader.shapes[x], reader.shapes[y]
    if min(map(len, shapes)) > 1 or not all(shapes):
        return None
    chain, (first, second) = Chain(reader, node), shapes
    x = chain.reshape(x, 1, *first) if len(first) == 1 else x
    y = chain.reshape(y, *second, 1) if len(second) == 1 else y
    before = np.broadcast_shapes(first[:-2], second[:-2])
    ends = (*first[-2:-1], *second[-1:]) if len(second) > 1 else first[-2:-1]
    chain.reshape(chain.add("MatMul", x, y), *before, *ends)
    return chain.finish()


PRODUCTS: dict[str, Rewrite] = {"CumSum": _running_sum, "Einsum": _einsum, "MatMul": _vectors, "Trilu": _triangle}
