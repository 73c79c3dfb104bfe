"""Honest results of every kind, and the ways to spoil them."""
