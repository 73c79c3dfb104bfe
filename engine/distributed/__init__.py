"""A drafter on another machine: what it is asked over a stream, and a session of it at either end."""
