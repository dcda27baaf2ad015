"""Targets: execution modules with patterns, constraints and costs, the host among them, and their assignment."""

from .module import ExecModule, Memory, Pattern, Refusal, Target

__all__ = ["ExecModule", "Memory", "Pattern", "Refusal", "Target"]
