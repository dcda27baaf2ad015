"""Layers whose output channels units GEMM and ternary divide: tiles and cost (`plan`), the kernel (`kernel`)."""
