"""Presets: named, allowed configurations as data, and how a request, a preset and a host's policy meet."""
