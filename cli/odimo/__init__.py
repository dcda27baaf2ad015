"""`tilewright odimo`: networks trained for two compute units, their front and their programs."""

from .verb import command

__all__ = ["command"]
