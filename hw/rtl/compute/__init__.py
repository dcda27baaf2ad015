"""GEMM and ALU: a pipeline of one micro-op per cycle, and the blocks that keep instructions in order."""
