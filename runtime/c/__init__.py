"""Programs as C sources: for hosts without Python."""
