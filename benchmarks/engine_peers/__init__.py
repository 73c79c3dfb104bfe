"""The engine beside other engines, on the same weights within one run: `make engine-peers`."""
