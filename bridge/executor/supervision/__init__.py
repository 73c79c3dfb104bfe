"""One command from start to end: its environment, its bounds, its peer, what is said of how it ended."""
