"""What a run leaves: its log, its marks, its output files; redacted and bounded."""
