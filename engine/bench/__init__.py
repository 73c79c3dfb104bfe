"""Interleaved comparisons of the engine with other implementations on the same weights."""
