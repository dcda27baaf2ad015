"""Random programs on definition, behavioural model, timing model and circuit; differences become short cases."""
