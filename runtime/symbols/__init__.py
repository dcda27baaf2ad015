"""Addresses of a launch that depend on the inputs of a run."""
