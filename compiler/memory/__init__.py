"""Where activations lie in DRAM: lifetimes, plans against their lower bound, and a picture."""
