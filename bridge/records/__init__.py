"""Frozen, strict records that cross a boundary; their JSON Schemas are generated from here.

Knows shapes, not meaning: whether a request is allowed, a lease is live or a number may be quoted is decided elsewhere.
"""
