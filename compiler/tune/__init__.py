"""Tiles by measurement: the cost model's best few in the timing model, or trials of meta_schedule."""

from .decisions import decided
from .measure import cycles_of
from .sampling import Space
from .trials import Tried, Tuned, replay, space, tune

__all__ = ["Space", "Tried", "Tuned", "cycles_of", "decided", "replay", "space", "tune"]
