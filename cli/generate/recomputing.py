"""What the cache of keys and values saves: a text's cycles with it, and where each token computes all again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from .shares import PARTS, parts_of

if TYPE_CHECKING:
    from ...compiler.graph import Graph
    from ...runtime.executable import Executable
    from ...sim.dram import Dram

DEEPLOY = 23  # the ratio that Deeploy's authors publish for 256 steps of their microLlama


def check_blocks(executable: Executable) -> None:
    """Raise `UnsupportedError` where the program takes no blocks of tokens."""
    from ...hw.errors import UnsupportedError
    from ...runtime.language import language_model

    if language_model(executable).block == 1:
        raise UnsupportedError(
            f"{executable.cfg.name}: its program takes a token at a time; blocks of tokens need attention on the "
            "accelerator, as on pynq_z1_plus"
        )


def recomputing(
    graph: Graph, executable: Executable, steps: int, clock: float, dram: Dram | None = None
) -> dict[str, Any]:
    """{"steps", "cache", "recomputing", "ratio"} of `steps` runs of a language model, one token behind the other.

    `cache` and `recomputing` are cycles by part, with `host` and `total`, by the timing model with the memory `dram`,
    as of `shares`, and the modelled host, in cycles of the accelerator's `clock`, in Hz. Without a cache a step takes
    all tokens so far again: whole blocks, then the rest as one more block or token by token, whichever is faster.
    Raises `UnsupportedError` where the program takes no blocks.
    """
    from ...compiler.network import compile_for
    from ...compiler.target.blocks import in_blocks
    from ...compiler.target.host import HostModel
    from ...runtime.language import language_model

    check_blocks(executable)
    size = language_model(executable).block
    rows = in_blocks(graph, size)
    assert rows is not None  # its program has blocks
    alone, together = (
        clock * compile_for(g, executable.cfg, dram=dram).host_seconds(HostModel()) for g in (graph, rows)
    )
    tokens = [_with(parts, alone) for parts in parts_of(graph, executable, "position", range(steps), dram)]
    blocks = [_with(parts, together) for parts in parts_of(graph, executable, "block", range(-(-steps // size)), dram)]
    again: Counter[str] = Counter()
    for count in range(1, steps + 1):
        whole, rest = divmod(count, size)
        again += _sum(blocks[:whole])
        if rest:
            again += min(blocks[whole], _sum(tokens[whole * size : count]), key=_total)
    found = {"cache": _sum(tokens), "recomputing": again}
    facts = {
        name: {part: parts[part] for part in (*PARTS, "host")} | {"total": _total(parts)}
        for name, parts in found.items()
    }
    return {"steps": steps, **facts, "ratio": facts["recomputing"]["total"] / facts["cache"]["total"]}


def _with(parts: Counter[str], host: float) -> Counter[str]:
    return parts + Counter({"host": round(host)})


def _sum(runs: list[Counter[str]]) -> Counter[str]:
    return sum(runs, Counter())


def _total(parts: Counter[str]) -> int:
    return sum(parts.values())
