"""From bytes to a report of a known kind: strict JSON, then the schema."""
