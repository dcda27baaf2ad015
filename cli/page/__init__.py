"""`tilewright report`: one page about a program and a run of it, and the data behind the page as JSON."""

from .make import report
from .verb import command

__all__ = ["command", "report"]
