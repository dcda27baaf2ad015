"""Operators of transformers."""
