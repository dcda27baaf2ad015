"""`tilewright report`: one page about a program and a run of it, and the data behind the page as JSON."""

from .make import command, report

__all__ = ["command", "report"]
