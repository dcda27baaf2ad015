"""Operators as parts of the accelerator's program: each becomes a schedule and its packed constants."""
