"""Cheats made by hand, each with the rule that must refuse it."""

from tests.corpus.gate.cheats import bounded, generations, studies
from tests.corpus.gate.cheats.registry import CHEATS

__all__ = ["CHEATS", "bounded", "generations", "studies"]
