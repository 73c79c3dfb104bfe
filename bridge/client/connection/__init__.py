"""The way to a bus: route, pinned id and keys, the embedded runner, runners that are live."""
