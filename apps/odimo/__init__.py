"""Networks trained for two compute units: which output channels of a layer are int8, and which are ternary (ODiMO)."""
