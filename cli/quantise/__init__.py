"""`tilewright quantise`: a checkpoint's integers in a file, and what they cost."""

from .verb import command

__all__ = ["command"]
