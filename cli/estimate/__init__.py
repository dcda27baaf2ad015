"""`tilewright estimate`: area, clock, cycles and bandwidth without synthesis; the points that its model rests on."""

from .verb import command

__all__ = ["command"]
