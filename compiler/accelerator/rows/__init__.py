"""Operators along the channels of every pixel, as rows of features: softmax, means, and operands of one per row."""
