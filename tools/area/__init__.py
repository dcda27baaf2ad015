"""The fit of the model of areas (apps/explore/area.py)."""
