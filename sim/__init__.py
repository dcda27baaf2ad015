"""Executing programs without the accelerator.

`spec` defines the instruction set, `model` is its fast form, `timing` counts cycles, `rtl` simulates the circuit.
"""
