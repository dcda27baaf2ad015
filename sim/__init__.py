"""Executing programs without the accelerator: the behavioural model, which defines the instruction set."""
