"""What a DFlash drafter is in any array library: its facts, its two ways of proposing, and what it holds back.

Knows no tensors: a backend derives its model and its drafter from these and adds the products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

from engine.drafters.dflash import FLUSH_ROWS, DFlashConfig
from engine.drafters.local import LocalDrafter, SampledModel
from engine.errors import ObservationError, UsageError
from engine.protocols import Drafter
from engine.types import DrafterInfo, Features
from engine.verification.rejection import Sampling, Uniforms

Array = TypeVar("Array")


@dataclass(frozen=True)
class ConvWeights(Generic[Array]):
    """One sublayer's convolution: base kernel ``[2, taps, D]``, projection of its input to the corrections."""

    base: Array
    projection: Array


@dataclass(frozen=True)
class LayerWeights(Generic[Array]):
    """One draft layer's weights, projections of the same input joined into one matrix; convolutions in DFlash 2."""

    input_norm: Array
    qkv: Array
    q_norm: Array
    k_norm: Array
    out: Array
    post_norm: Array
    gate_up: Array
    down: Array
    attention_conv: ConvWeights[Array] | None = None
    mlp_conv: ConvWeights[Array] | None = None


def layer_weights(
    named: Mapping[str, Array], index: int, joined: Callable[[Sequence[Array]], Array]
) -> LayerWeights[Array]:
    """Return the weights of layer ``index`` by their published names; ``joined`` stacks projections of one input."""

    def projections(*names: str) -> Array:
        return joined([named[f"{prefix}{name}_proj.weight"] for name in names])

    def convolution(name: str) -> ConvWeights[Array] | None:
        base = named.get(f"{prefix}{name}.base_kernel")
        if base is None:
            return None
        return ConvWeights(base, joined([named[f"{prefix}{name}.kernel_projection.weight"]]))

    prefix = f"layers.{index}."
    return LayerWeights(
        input_norm=named[prefix + "input_layernorm.weight"],
        qkv=projections("self_attn.q", "self_attn.k", "self_attn.v"),
        q_norm=named[prefix + "self_attn.q_norm.weight"],
        k_norm=named[prefix + "self_attn.k_norm.weight"],
        out=projections("self_attn.o"),
        post_norm=named[prefix + "post_attention_layernorm.weight"],
        gate_up=projections("mlp.gate", "mlp.up"),
        down=projections("mlp.down"),
        attention_conv=convolution("attention_conv"),
        mlp_conv=convolution("mlp_conv"),
    )


def context_projections(named: Mapping[str, Array], layers: int) -> tuple[list[Array], list[Array]]:
    """Return every layer's key projections followed by its value projections, and every layer's key norm."""
    attention = [f"layers.{index}.self_attn." for index in range(layers)]
    sides = [named[f"{prefix}{side}_proj.weight"] for side in "kv" for prefix in attention]
    return sides, [named[prefix + "k_norm.weight"] for prefix in attention]


class DFlashModel(ABC):
    """A drafter's configuration, bound to the target whose embedding and head it borrows."""

    def __init__(self, config: DFlashConfig, info: DrafterInfo) -> None:
        self.config = config
        self._info = info

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and settings."""
        return self._info

    @property
    def capture(self) -> tuple[int, ...]:
        """Target layers it reads."""
        return self.config.target_layer_ids

    @property
    def context_tokens(self) -> int:
        """How many of the newest positions the context shows."""
        return self.config.context_tokens

    def open(self) -> Drafter:
        """Start with an empty context, proposing the most likely tokens."""
        return self.start(None)

    @property
    def rows_apart(self) -> bool:
        """Whether proposed tokens are drawn apart: the selector of DFlash 2 chooses each by the one before it."""
        return self.config.second is None

    def open_at(self, position: int, settings: Sampling | None = None) -> Drafter:
        """Start with an empty context whose first position is ``position``."""
        drafter = self.start(settings)
        if isinstance(drafter, DFlashDrafter):
            drafter.begin(position)
        return drafter

    def sampling(self, settings: Sampling) -> SampledModel:
        """Return the same drafter proposing by sampling, with the distribution of every proposal in its drafts."""
        return SampledModel(self, settings)

    def bounded(self, context_tokens: int) -> Self:
        """Return the same drafter, remembering at most the newest ``context_tokens`` positions.

        Raises:
            UsageError: If it would remember none.
        """
        if context_tokens < 1:
            raise UsageError(f"a drafter's context of {context_tokens} positions; expected at least 1")
        bounded = copy(self)
        bounded.config = replace(self.config, context_tokens=context_tokens)
        bounded._info = replace(self._info, settings=self._info.settings | {"context_tokens": context_tokens})
        return bounded

    @abstractmethod
    def start(self, settings: Sampling | None) -> Drafter:
        """Start a sequence with an empty context; with ``settings`` from the first draw of their seed."""


class DFlashDrafter(LocalDrafter, ABC):
    """The proposer of one sequence: committed rows wait to be projected together, at a draft or when enough wait."""

    def __init__(self, settings: Sampling | None) -> None:
        self._settings = settings
        self._uniforms = None if settings is None else Uniforms(settings.seed, "drafter")
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._forwards = 0
        self._observed_rows = 0

    def begin(self, position: int) -> None:
        """Begin, while nothing was observed, at a later position than 0."""
        self._observed_rows = position
        self._begin_context(position)

    @property
    def forwards(self) -> int:
        """Drafter forwards run so far."""
        return self._forwards

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep the features of committed positions until a draft needs them projected.

        Raises:
            ObservationError: If the positions do not follow those observed so far.
        """
        ObservationError.check(start, self._observed_rows)
        self._observed_rows += len(tokens)
        self._waiting.append(features)
        self._waiting_rows += len(tokens)
        if self._waiting_rows >= FLUSH_ROWS:
            self._flush_early()

    def rewind(self, length: int) -> int:
        """Go back to the first ``length`` positions; return how many of them were observed.

        Raises:
            CacheCropError: If rows that the context would show then are gone.
        """
        self._flush()
        self._observed_rows = min(length, self._observed_rows)
        self._rewind_context(self._observed_rows)
        return self._observed_rows

    @abstractmethod
    def _begin_context(self, position: int) -> None:
        """Let the empty context begin at a position."""

    @abstractmethod
    def _rewind_context(self, length: int) -> None:
        """Take the context back to an earlier length."""

    def _flush_early(self) -> None:
        """Project while no draft is wanted yet."""
        self._flush()

    def _flush(self) -> None:
        """Project whatever waits into the context."""
        if self._waiting:
            waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
            self._project(waiting)

    @abstractmethod
    def _project(self, waiting: list[Any]) -> None:
        """Append the keys and values of the rows that waited to the context."""
