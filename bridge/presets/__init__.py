"""Presets: named, allowed configurations as data, and how a request, a preset and a host's policy meet."""

from bridge.presets.facts import LimitCaps, PolicyFacts, Trust
from bridge.presets.model import Preset
from bridge.presets.parameters import bind
from bridge.presets.installed import find, load, registry
from bridge.presets.resolution import explain, host_labels, resolve

__all__ = [
    "LimitCaps",
    "PolicyFacts",
    "Preset",
    "Trust",
    "bind",
    "explain",
    "find",
    "host_labels",
    "load",
    "registry",
    "resolve",
]
