"""The studies of `kakeya-engine eval`, one kind a module."""
