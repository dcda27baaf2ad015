"""Layers whose channels are mapped to compute units, as the command shows them."""
