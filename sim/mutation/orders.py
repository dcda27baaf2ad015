"""All orders in which the queues of a program may interleave, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from .runs import Bench, Outcome


class _Path:
    """A choice that takes the instructions at the places `taken`, and then the first; `options` are as many as could
    be taken, one number for each step."""

    def __init__(self, taken: Sequence[int]):
        self._taken, self.options = taken, list[int]()

    def __call__(self, ready: list[int]) -> int:
        """The one of `ready` to execute."""
        at = len(self.options)
        self.options.append(len(ready))
        return ready[self._taken[at] if at < len(self._taken) else 0]


def every_order(bench: Bench, number: int, most: int) -> list[Outcome] | None:
    """The outcomes of run `number` in all orders that queues and tokens allow, None where they are more than `most`."""
    outcomes, taken = list[Outcome](), list[int]()
    while len(outcomes) < most:
        path = _Path(taken)
        outcomes.append(bench.run(number, path))
        taken += [0] * (len(path.options) - len(taken))
        while taken and taken[-1] + 1 == path.options[len(taken) - 1]:
            taken.pop()
        if not taken:
            return outcomes
        taken[-1] += 1
    return None
