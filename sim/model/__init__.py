"""The behavioural model, the fast form of sim/spec.py: a whole instruction in a few array operations."""
