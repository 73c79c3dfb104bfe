"""Answer one prompt as a stream of text."""
