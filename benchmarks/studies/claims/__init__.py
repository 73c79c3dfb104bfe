"""Claims of whole runs: what may be quoted, what copies differ by, what cheats lose."""
