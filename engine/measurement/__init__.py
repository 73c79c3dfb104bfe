"""Measure decoding: arms in a drawn order over prompts, one launch a process."""
