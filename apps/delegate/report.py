"""What a delegate took of a network, what it left and why, and what its parts cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Partition:
    """Operators that run in one piece: their names in order, multiply-accumulates and launches of a run.

    `cycles` are the accelerator's, `counted_by` says whose: of the device in the last run where it has a clock, else of
    the timing model. `host_seconds` are those of the steps on the host beside it, modelled for a Cortex-A9 at 650 MHz.
    `wall_seconds` passed on this machine in the last run; None before the first.
    """

    operators: tuple[str, ...]
    macs: int
    launches: int
    cycles: int
    counted_by: str
    host_seconds: float
    wall_seconds: float | None


@dataclass(frozen=True)
class Report:
    """The network's partitions, and the operators that stay with the interpreter: name and reason, in order.

    `left_seconds` are those of the operators that stay, `alone_seconds` of the whole network without an accelerator,
    both modelled for the same Cortex-A9; None where there is an operator of which nothing is known.
    """

    network: str
    config: str
    device: str
    runtime: str
    partitions: tuple[Partition, ...]
    left: tuple[tuple[str, str], ...]
    left_seconds: float | None
    alone_seconds: float | None

    @property
    def operators(self) -> int:
        """All operators of the network."""
        return len(self.left) + sum(len(part.operators) for part in self.partitions)

    @property
    def cycles(self) -> int:
        """Cycles of all partitions."""
        return sum(part.cycles for part in self.partitions)

    @property
    def host_seconds(self) -> float:
        """Modelled time of the host's steps in all partitions; what the interpreter runs is not in it."""
        return sum(part.host_seconds for part in self.partitions)

    def __str__(self) -> str:
        taken = self.operators - len(self.left)
        lines = [
            f"{self.network}: {taken} of {self.operators} operators in {len(self.partitions)} "
            f"partition{'s' * (len(self.partitions) != 1)} on {self.device} ({self.config}, rounding as {self.runtime})"
        ]
        for number, part in enumerate(self.partitions, 1):
            names = " to ".join(dict.fromkeys((part.operators[0], part.operators[-1])))
            wall = "" if part.wall_seconds is None else f", {1e3 * part.wall_seconds:.1f} ms on this machine"
            lines.append(
                f"  {number}: {names} ({len(part.operators)}), {part.macs:,} MACs, {part.cycles:,} cycles "
                f"({part.counted_by}), host {1e6 * part.host_seconds:,.0f} us (modelled){wall}"
            )
        reasons: dict[str, list[str]] = {}
        for name, why in self.left:
            reasons.setdefault(why, []).append(name)
        lines += [f"  left: {', '.join(names)}: {why}" for why, names in reasons.items()]
        return "\n".join(lines)
