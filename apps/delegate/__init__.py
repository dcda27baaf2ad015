"""The delegate for TFLite's interpreters: parts of a network that stays with its interpreter run on the accelerator."""
