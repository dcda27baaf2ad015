"""The stable name of where operands lie on chip, compiler/tir/placement.py."""

from .tir.placement import Placement

__all__ = ["Placement"]
