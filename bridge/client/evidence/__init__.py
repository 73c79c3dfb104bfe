"""The reader's side of results: verify, compare, quote, read reports, judge again."""
