"""Relax modules of TVM on the accelerator: `tilewright_pipeline` gives it what it can compute, TVM keeps the rest."""

from .pipeline import tilewright_pipeline
from .report import PartReport, report
from .runner import release

__all__ = ["PartReport", "release", "report", "tilewright_pipeline"]
