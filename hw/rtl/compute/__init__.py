"""GEMM and ALU: one micro-op per cycle through a pipeline, and what keeps instructions in their order."""
