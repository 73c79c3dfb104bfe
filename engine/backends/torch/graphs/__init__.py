"""Recorded forwards over static caches."""
