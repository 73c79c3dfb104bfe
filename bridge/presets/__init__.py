"""Presets: named, allowed configurations as data, and how a request, a preset and a host's policy meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.lazy import importing

if TYPE_CHECKING:
    from bridge.presets.facts import LimitCaps, PolicyFacts, Trust
    from bridge.presets.installed import find, load, registry
    from bridge.presets.model import Preset
    from bridge.presets.parameters import bind
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

_MODULES = {
    "facts": "LimitCaps PolicyFacts Trust",
    "installed": "find load registry",
    "model": "Preset",
    "parameters": "bind",
    "resolution": "explain host_labels resolve",
}
__getattr__ = importing(__name__, _MODULES)
