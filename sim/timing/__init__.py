"""Cycles of a program without its data: the queues, tokens, loads, memory, pipeline and stores of the circuit."""

from .engine import Timing, check_memory, predict, simulate

__all__ = ["Timing", "check_memory", "predict", "simulate"]
