"""OpenAI's port in front of an engine: requests over HTTP, one thread that steps their answers in turn."""
