"""The delegate for TFLite's interpreters, `from tilewright.delegate import TilewrightDelegate`: docs/delegate.md."""

from tilewright.apps.delegate.delegate import TilewrightDelegate

__all__ = ["TilewrightDelegate"]
