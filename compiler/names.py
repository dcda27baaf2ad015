"""Names of tensors and operators, each given once."""

from __future__ import annotations

from collections.abc import Iterable


class Names(set[str]):
    """The names that are taken."""

    def __init__(self, names: Iterable[str] = ()):
        super().__init__(names)
        self._variants: dict[str, int] = {}  # of each name, the number of the last variant that was given

    def unused(self, name: str) -> str:
        """Take `name`, or the first of `name'`, `name'2`, `name'3`, ... that is free, and return it."""
        found, k = name, self._variants.get(name, 0)
        while found in self:
            k += 1
            found = f"{name}'{k if k > 1 else ''}"
            self._variants[name] = k
        self.add(found)
        return found
