"""Sources of generated files, for `tests.drift`."""
