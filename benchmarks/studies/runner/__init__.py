"""Runners that are killed."""
