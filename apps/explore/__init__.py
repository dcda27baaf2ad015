"""Design-space exploration: configurations that a space offers, measured on networks, and the best of them."""
