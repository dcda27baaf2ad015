"""The timing model and the circuit against records, and against each other."""
