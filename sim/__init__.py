"""Executing programs without the accelerator.

`spec` defines what a program does, `model` is its fast form, `timing` counts cycles, `rtl` simulates the circuit.
"""
