"""Bounded caches: bytes held, hidden codes found."""
