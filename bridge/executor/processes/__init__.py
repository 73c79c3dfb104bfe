"""The processes of a run as one tree: subreaper, control groups, suspension."""
