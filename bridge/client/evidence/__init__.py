"""What a reader does with results: verify, compare, quote, read reports, judge again."""
