"""The PYNQ-Z1: build of its bitstream, top level, and driver."""
