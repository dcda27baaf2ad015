"""`tilewright diff`: networks in TFLite's interpreter, with the delegate and without."""

from .verb import command

__all__ = ["command"]
