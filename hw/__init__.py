"""What the accelerator is: configuration, instruction set, registers and rounding, each declared once."""
