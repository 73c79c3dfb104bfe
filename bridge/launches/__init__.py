"""Ratios between launches of a measured program: the numbers that both the supervisor and the gate decide by.

A floor of its own below the records, on the standard library only, because the process that starts launches and the
gate that judges them are rooms that never import each other. Knows seconds and ratios, no report, record or process.
"""
