"""The stable name of tiles sampled in a trial, compiler/tune/sampling.py."""

from .tune.sampling import tile_of

__all__ = ["tile_of"]
