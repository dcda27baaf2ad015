"""Operators along the channels of every pixel, as rows of features: softmax and its reciprocals."""
