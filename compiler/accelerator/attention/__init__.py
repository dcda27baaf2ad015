"""What kernels need that are recorded without the tile language."""
