"""Start and stop inference servers in a run's sandbox, and ask them from beside it."""
