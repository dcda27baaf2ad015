"""`tilewright bench`: the layers of ResNet-18 on model, timing model or circuit."""

from .verb import command

__all__ = ["command"]
