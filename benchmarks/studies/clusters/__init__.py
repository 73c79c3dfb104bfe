"""Runs on a real Slurm and a real Ray."""
