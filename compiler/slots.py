"""The stable name of the placement of operands on chip, compiler/tir/placement.py."""

from .tir.placement import Placement

__all__ = ["Placement"]
