"""Drafters elsewhere."""
