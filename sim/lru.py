"""A cache with a limit on the total cost of its values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """Values by key; the least recently used are dropped when the total cost exceeds `limit`.

    A value that costs more than `limit` by itself is returned but not kept.
    """

    def __init__(self, limit: int):
        self.limit, self.cost = limit, 0
        self._items: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: Hashable, make: Callable[[], V], cost: Callable[[V], int]) -> V:
        """The value of `key`; where it is absent, the result of `make`, kept at `cost(value)`."""
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
            return item[0]
        value = make()
        price = cost(value)
        if price <= self.limit:
            self._items[key] = value, price
            self.cost += price
            while self.cost > self.limit:
                self.cost -= self._items.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Drop all values."""
        self._items.clear()
        self.cost = 0
