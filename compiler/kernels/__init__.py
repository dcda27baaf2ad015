"""Kernels of the accelerator: the tile language, and one function per operator in a file named after it."""
