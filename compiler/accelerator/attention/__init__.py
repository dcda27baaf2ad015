"""Operators of transformers, recorded directly: norms, rotations, caches that are written in place, and attention.

The accelerator has no division and no roots: tables and Newton's method give them (root.py). A chain of operations on
few entries waits for each result, so what can be computed side by side is one instruction. Addresses that depend on the
token or its position are symbols of the launch.
"""
