"""Memory plans of activations in DRAM: lifetimes, addresses, lower bounds, and a picture."""
