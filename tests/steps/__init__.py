"""Step runners and clients over a bus in memory: one at a time, on a virtual clock, in an order that a seed decides."""
