"""The requester's side as functions: send, follow, fetch, verify, quote. Prints nothing."""
