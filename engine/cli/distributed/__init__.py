"""The verbs of remote drafting."""
