"""Drafters in the file formats of other engines."""
