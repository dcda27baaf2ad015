"""The stable name of the golden interpreter of networks, compiler/graph/reference.py."""

from .graph.reference import apply, run, trace

__all__ = ["apply", "run", "trace"]
