"""Cycles of a program without its data: queues, tokens, loads, memory, pipeline and stores, as the circuit has them."""

from .engine import Timing, check_memory, predict, simulate

__all__ = ["Timing", "check_memory", "predict", "simulate"]
