"""Ratios within one interleaved run each, seconds to minutes: `make bench`."""
