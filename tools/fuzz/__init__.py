"""Random programs on definition, behavioural model, timing model and circuit, and what to do where these differ."""
