"""Text on stdout and stderr: one run, its progress, tables, colours."""
