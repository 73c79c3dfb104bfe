"""Claim runs through the real program on a machine that a named load program keeps busy, and what they came to."""
