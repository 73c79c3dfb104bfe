"""The owner's `policy.toml`: read, checked, explained."""
