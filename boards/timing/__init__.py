"""Static timing of the flattened core on the 7 series, before placement."""
