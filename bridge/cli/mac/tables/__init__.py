"""Commands that print tables of several things: runs side by side, the arms of a report."""
