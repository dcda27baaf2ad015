"""Tiles by measurement: the cost model's best few in the timing model, or trials of meta_schedule."""

from .sampling import Space
from .tasks import cycles_of
from .trials import Tried, Tuned, decided, merge, replay, space, tune

__all__ = ["Space", "Tried", "Tuned", "cycles_of", "decided", "merge", "replay", "space", "tune"]
