"""The graph of a language model's step for several tokens at once: rows in place of one row, the same integers."""

from __future__ import annotations

from dataclasses import replace

from .. import graph as g

TOKENS, BLOCK = "tokens", "block"  # the inputs of the graph: int32 (T,), and int32 (1,), how many blocks are before it


def in_blocks(graph: g.Graph, count: int) -> g.Graph | None:
    """The graph of `count` tokens, of whose last the output is; None of a network that is no such step.

    A step has two inputs of one number, a row of a constant table and the position, and its operators are those of
    single rows or of caches.
    """
    found = _inputs(graph)
    if found is None or not _divides(graph, count) or {TOKENS, BLOCK} & {op.output.name for op in graph.ops}:
        return None
    token, position = found
    renamed = {token: g.Tensor(TOKENS, (count,), "int32"), position: g.Tensor(BLOCK, (1,), "int32")}
    last = _last_rows(graph)
    ops: list[g.Operator] = []
    for op in graph.ops:
        inputs = tuple(renamed.get(t.name, t) for t in op.inputs)
        ops.append(replace(op, inputs=inputs) if op.name in last else op.of_tokens(inputs, count))
        renamed[op.output.name] = output = ops[-1].output
        if any(op.output in other.inputs for other in graph.ops if other.name in last) and op.name not in last:
            row = replace(output, name=f"{output.name}.last", shape=(1, *output.shape[1:]))
            ops.append(g.StridedSlice(row.name, (output,), row, (count - 1, 0), (1, 1)))
            renamed[op.output.name] = row
    outputs = tuple(renamed[t.name] for t in graph.outputs)
    states = tuple(replace(s, next=renamed[s.next.name]) for s in graph.states)
    inputs = renamed[token], renamed[position]
    return replace(graph, inputs=inputs, outputs=outputs, ops=tuple(ops), states=states)


def _inputs(graph: g.Graph) -> tuple[str, str] | None:
    """The names of the inputs that are the token and the position; None where there are others."""
    tokens, positions = set[str](), set[str]()
    for op in graph.ops:
        if op.symbol is not None:
            (positions if op.x.data is None else tokens).add(op.symbol[0].name)
        elif not op.apart or len(op.output.shape) != 2 or op.output.shape[0] != 1:
            return None
    known = {t.name for t in graph.inputs}
    if len(tokens) != 1 or len(positions) != 1 or tokens | positions != known or len(known) != 2:
        return None
    wrong = [t for t in graph.inputs if (t.shape, t.dtype) != ((1,), "int32")]
    return None if wrong else (tokens.pop(), positions.pop())


def _divides(graph: g.Graph, count: int) -> bool:
    """True if no block of `count` tokens is in two parts of a cache."""
    return all(op.run % count == 0 for op in graph.of(g.Write))


def _last_rows(graph: g.Graph) -> set[str]:
    """The names of the operators at the end that need the last row alone: a chain, to the only output."""
    found = set[str]()
    if len(graph.outputs) != 1:
        return found
    wanted = graph.outputs[0]
    producers = {op.output.name: op for op in graph.ops}
    while True:
        op = producers.get(wanted.name)
        readers = [other for other in graph.ops if wanted in other.inputs]
        given = [] if op is None else [t for t in op.inputs if t.data is None]
        if op is None or not op.apart or len(given) != 1 or len(readers) > 1:
            return found
        found.add(op.name)
        (wanted,) = given
