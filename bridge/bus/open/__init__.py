"""Make or open a bus: a remote, the embedded one, one that a host serves over ssh."""
