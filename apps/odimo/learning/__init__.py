"""Training with PyTorch: layers that choose a unit per channel, the phases, and the way from there to integers."""
