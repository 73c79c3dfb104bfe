"""The only doors to the outside: processes, git, clocks."""
