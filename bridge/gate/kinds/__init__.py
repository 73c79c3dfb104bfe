"""A package per kind of report: `schema.json`, `recompute` for its claims, and the rules that it alone must hold."""
