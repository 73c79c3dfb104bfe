"""Publish: turn a run into a self-contained result tree."""

from bridge.publish.markdown import escape, summary
from bridge.publish.tree import MASK, build_tree, mask

__all__ = ["MASK", "build_tree", "escape", "mask", "summary"]
