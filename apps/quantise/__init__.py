"""Float networks to static int8 networks, by well-kept quantisers, with the accuracy that is left."""
