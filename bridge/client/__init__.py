"""What kakeya-mac does, as functions: send, follow, fetch, verify, quote. Prints nothing."""
