"""Ratios measured inside one interleaved run; no test asserts them. `python -m benchmarks [NAME …]`."""
