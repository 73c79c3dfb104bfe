"""Targets: how a family runs its layers, and a sequence over its caches."""
