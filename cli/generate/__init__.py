"""`tilewright generate`: text from a language model, token by token, on a device."""

from .verb import command

__all__ = ["command"]
