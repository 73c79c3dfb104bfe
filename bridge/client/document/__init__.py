"""The shape of every `--json` document, and text made safe to show. Knows no bus."""
