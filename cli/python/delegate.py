"""The delegate for TFLite's interpreters, `from tilewright.delegate import TilewrightDelegate`: docs/delegate.md."""

from tilewright.compiler.delegate.delegate import TilewrightDelegate

__all__ = ["TilewrightDelegate"]
