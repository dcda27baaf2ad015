"""Boards with a Zynq: build of their bitstreams, top level, and driver."""
