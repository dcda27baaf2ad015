"""Faults on the simulated circuit, tried at random: on its buses, in its instructions, by its host."""
