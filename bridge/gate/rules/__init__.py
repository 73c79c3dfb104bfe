"""The rules, one file each; `bridge.gate.registry` finds them. A file's docstring is its rule's message."""
