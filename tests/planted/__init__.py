"""Faults planted on purpose, to measure what the tests find: `python -m tests.planted`, or `make planted`.

`faults/*.toml` is the table. A fault names the symbol it lives in, not the file, so that code may move; it fails
loudly once it no longer applies. Each is planted into a copy of HEAD with an environment of its own, and the tests
that matter for its room run until one fails.
"""
