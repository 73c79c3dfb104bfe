"""A target on MLX: weights that open sequences."""

from __future__ import annotations

from typing import Any

from engine.backends.mlx.models.compiled import CompiledSteps
from engine.backends.mlx.models.decoder import Weights
from engine.backends.mlx.models.sequence import MlxSequence
from engine.errors import ModelMismatchError
from engine.restoration.elsewhere import ElsewhereRestorer
from engine.restoration.restorers import Restorer
from engine.structure.decoder import Structure
from engine.structure.layout import CacheLayout
from engine.types import TargetInfo


class MlxTarget(Weights):
    """Implements ``engine.protocols.TargetModel``."""

    restorer: Restorer | ElsewhereRestorer | None = None
    """What makes evicted rows again, None for nothing."""

    def __init__(self, module: Any, info: TargetInfo, structure: Structure) -> None:
        super().__init__(module, info, structure)
        self.steps = CompiledSteps(self.family)

    def open(
        self, capture: tuple[int, ...], layout: CacheLayout, restorer: Restorer | ElsewhereRestorer | None = None
    ) -> MlxSequence:
        """Start a sequence; ``restorer`` stands in for the target's own.

        Raises:
            ModelMismatchError: If a captured layer does not exist.
            UsageError: If the target cannot have the layout.
        """
        family = self.family
        layout.check(family.windows, family.head_dims, family.structure.attending, self.info.max_positions)
        if any(not 0 <= layer < self.info.layer_count for layer in capture):
            raise ModelMismatchError(f"capture of layers {list(capture)}; the target has {self.info.layer_count}")
        return MlxSequence(self, capture, layout, restorer or self.restorer, self.steps)
