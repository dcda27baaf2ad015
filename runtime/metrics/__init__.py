"""Values of the metrics that hw/metrics.py declares, from a launch, its counts and the cycles of its instructions."""
