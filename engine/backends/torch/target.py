"""A target on torch: weights that open sequences, recorded where slots are there for them."""

from __future__ import annotations

from typing import Any

from engine.backends.torch.graphs.sequence import GraphedSequence
from engine.backends.torch.graphs.slots import Slots
from engine.backends.torch.models.decoder import Weights
from engine.backends.torch.models.sequence import TorchSequence
from engine.errors import ModelMismatchError
from engine.restoration.elsewhere import ElsewhereRestorer
from engine.restoration.restorers import Restorer
from engine.structure.layout import CacheLayout
from engine.types import Draft, TargetInfo


class TorchTarget(Weights):
    """Implements ``engine.protocols.TargetModel``."""

    def __init__(self, module: Any, info: TargetInfo, ahead: bool | None = None) -> None:
        super().__init__(module, info, ahead)
        self.slots: Slots | None = None
        """Where sequences have their blocks recorded, None to run every forward as it comes."""
        self.restorer: Restorer | ElsewhereRestorer | None = None
        """What makes evicted rows again, None for nothing."""

    def open(
        self, capture: tuple[int, ...], layout: CacheLayout, restorer: Restorer | ElsewhereRestorer | None = None
    ) -> TorchSequence:
        """Start a sequence; ``restorer`` stands in for the target's own.

        Raises:
            ModelMismatchError: If a captured layer does not exist.
            UsageError: If the target cannot have the layout.
        """
        family = self.family
        layout.check(family.windows, family.head_dims, family.structure.attending, self.info.max_positions)
        if any(not 0 <= layer < self.info.layer_count for layer in capture):
            raise ModelMismatchError(f"capture of layers {list(capture)}; the target has {self.info.layer_count}")
        if self.slots is None:
            return TorchSequence(self, capture, layout, restorer or self.restorer)
        return GraphedSequence(self, capture, layout, self.slots, restorer or self.restorer)

    def warm_up(self, block_rows: int) -> None:
        """Run every block shape up to ``block_rows`` once, so that kernels are chosen before anything is timed."""
        sequence = TorchSequence(self, (), CacheLayout.NATIVE)
        for _ in sequence.prefill((0,) * 16, 512):
            pass
        for rows in range(1, block_rows + 1):
            sequence.forward_block(0, Draft(tokens=(0,) * (rows - 1), count=rows - 1))
            sequence.crop(16)
