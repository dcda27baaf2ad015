"""Programs: recording, micro-ops, dependence tokens, verification, files, devices, host operators."""
