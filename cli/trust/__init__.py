"""Trials of what the rest promises: mutants for the verifier, random programs for every device."""
