"""Workloads that lie, run through the real runner."""
