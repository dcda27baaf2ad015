"""Proofs of programs: order, conflicts, memory, certificates; runtime/verify.py puts them together."""
