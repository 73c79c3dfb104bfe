"""Generated from the .proto files beside it: python -m tests.drift --write."""
