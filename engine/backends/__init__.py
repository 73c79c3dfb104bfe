"""One folder an array library, the same file names in each; only `engine.loading` imports them."""
