"""Sequences of rows as images, and products of two matrices that are both computed."""
