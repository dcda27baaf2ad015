"""Users of the compiler: the delegate, training for two units, exploration of configurations, Relax."""
