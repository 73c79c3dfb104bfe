"""One command from start to end: environment, bounds and peer; its log, marks and output files; how it ended."""
