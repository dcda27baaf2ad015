"""The stable name of the tile search, compiler/tune/search.py."""

from .tune.search import Search

__all__ = ["Search"]
