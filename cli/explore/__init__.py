"""`tilewright explore`: configurations tried on networks, and the best of them; `tilewright estimate`: one of them."""

from .verb import command

__all__ = ["command"]
