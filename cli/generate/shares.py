"""Where a token's time goes: cycles of the accelerator by kind of operator, and the modelled time of the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...compiler.graph import Graph, Operator
    from ...runtime.executable import Executable
    from ...runtime.launch import Launch
    from ...sim.dram import Dram

PARTS = ("weights", "attention", "norms", "rest")


def part_of(op: Operator) -> str:
    """The part that an operator's cycles count with."""
    from ...compiler import graph as g

    kinds = {
        "weights": (g.Linear, g.Dense16),
        "attention": (g.Attention, g.Rotate, g.Write),
        "norms": (g.RmsNorm,),
    }
    return next((part for part, known in kinds.items() if isinstance(op, known)), "rest")


def shares(
    graph: Graph,
    executable: Executable,
    positions: Sequence[int],
    blocks: Sequence[int],
    clock: float,
    dram: Dram | None = None,
) -> dict[str, Any]:
    """For runs of a language model: {"cycles_per_token", "cycles_by_part", "host_share"}, and {"prefill_cycles"}.

    Those of one token are at `positions`; where there are some of a block of tokens, these begin at `blocks`. Cycles
    are those of the timing model with the memory `dram`, by default `zynq_hp`; by part they are means per token, the
    host's modelled seconds in cycles of the accelerator's `clock`, in Hz; the share is of the sum of both.
    """
    from ...compiler.network import compile_for
    from ...compiler.target.host import HostModel
    from ...runtime.language import language_model

    size, found = language_model(executable).block, dict[str, Any]()
    if blocks:
        parts = parts_of(graph, executable, "block", [first // size for first in blocks], dram)
        found["prefill_cycles"] = [part.total() for part in parts]
    if positions:
        parts = parts_of(graph, executable, "position", positions, dram)
        whole = sum(parts, Counter())
        means = {part: whole[part] / len(positions) for part in PARTS}
        host = clock * compile_for(graph, executable.cfg, dram=dram).host_seconds(HostModel())
        found["cycles_per_token"] = [part.total() for part in parts]
        found["cycles_by_part"] = means | {"host": host}
        found["host_share"] = host / (host + sum(means.values()))
    return found


def parts_of(
    graph: Graph, executable: Executable, tensor: str, values: Sequence[int], dram: Dram | None = None
) -> list[Counter[str]]:
    """The accelerator's cycles by part of each run in which the input `tensor` has one of these `values`."""
    from ...runtime.executable import LaunchStep
    from ...runtime.steps import runs_in

    kinds = {op.name: part_of(op) for op in graph.ops}
    found: list[Counter[str]] = [Counter() for _ in values]
    for step in executable.steps:
        runs = [k for k, value in enumerate(values) if runs_in(step, {tensor: value})]
        if runs and isinstance(step, LaunchStep):
            parts = _by_part(step.launch, kinds, dram)
            for k in runs:
                found[k] += parts
    return found


def _by_part(launch: Launch, kinds: dict[str, str], dram: Dram | None) -> Counter[str]:
    """Cycles of a launch; those before its first instruction and after its last belong to the rest."""
    from ...sim.dram import ZYNQ_HP, unshared
    from ...sim.profile import profile
    from ...sim.timing import predict

    timing = predict(launch, dram=unshared(launch.cfg, dram or ZYNQ_HP))
    found: Counter[str] = Counter()
    for share in profile(launch, timing.timeline(), timing.cycles):
        found[kinds.get(share.path[0], "rest") if share.path else "rest"] += share.cycles
    return found
