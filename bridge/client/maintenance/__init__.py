"""Check the way from this clone to a runner, and remove what is old."""
