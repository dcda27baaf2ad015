"""The circuit, in Amaranth: the core, its bus, its registers, and the constants of its stages."""
