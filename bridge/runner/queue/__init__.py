"""Which waiting request this runner takes next, and why the others wait."""
