"""Host operators in float32: the parts of a network between its quantised ones."""
