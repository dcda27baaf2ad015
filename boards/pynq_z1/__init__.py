"""PYNQ-Z1."""
