"""The network of a run by names: one proxy of its supervisor, reached through a socket in the run's own namespace."""
