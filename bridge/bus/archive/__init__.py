"""Runs that ended long ago: folded by runner and day, found by their id, and their refs dropped."""
