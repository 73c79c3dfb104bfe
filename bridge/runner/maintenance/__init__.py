"""Set a host up, check it, undo it."""
