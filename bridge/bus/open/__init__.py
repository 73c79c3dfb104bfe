"""Make a bus: its record, the embedded one, one that a host serves over ssh."""
