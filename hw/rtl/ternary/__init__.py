"""Unit ternary: products with weights in {-1, 0, 1}, without multipliers, beside GEMM."""
