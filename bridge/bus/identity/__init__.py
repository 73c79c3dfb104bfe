"""Which bus this is: its record, and the root whose owner says whose key is whose."""
