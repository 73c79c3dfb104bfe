"""Nodes that tell each other who is there and what each can do."""
