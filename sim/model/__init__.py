"""The behavioural model, the fast form of sim/spec.py: an instruction is a few array operations."""
