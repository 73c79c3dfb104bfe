"""Publish: turn a run into a self-contained result tree, and check such a tree without anything else."""

from bridge.publish.markdown import escape, summary
from bridge.publish.tree import MASK, build_tree, mask
from bridge.trust.verifier import Problem, verify_tree

__all__ = ["MASK", "Problem", "build_tree", "escape", "mask", "summary", "verify_tree"]
