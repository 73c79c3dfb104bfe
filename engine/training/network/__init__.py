"""Networks that are trained here, and what moves their weights."""
