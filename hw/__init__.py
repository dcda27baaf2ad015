"""The declaration of the accelerator: configuration, instruction set, registers and rounding, each declared once."""
