"""`tilewright estimate`: area, clock, cycles and bandwidth of a configuration without synthesis, and what it rests on."""
