"""The head for several tokens that lies in a target's own checkpoint, as a drafter: nothing to fetch, nothing to train.

Such a head is one attending layer. For each position it reads what the target made of it and the token behind it; what
it puts out says the token after that, and stands for the target's own at the next position, so drafts are chained. Its
row of a position is exact once the token behind that position is committed; rows behind it are dropped after a draft.

Knows no tensors: a backend builds the layer and runs it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.checkpoint import text_config
from engine.drafters.local import LocalDrafter, SampledModel
from engine.errors import ModelConfigError, ModelWeightsError, ObservationError
from engine.protocols import Drafter
from engine.structure.decoder import Structure
from engine.structure.stored import FLOATS, head_name, stored_tensors
from engine.types import Draft, DrafterInfo, Features, TargetInfo
from engine.verification.rejection import Sampling, Uniforms

MTP = "mtp"
"""What the drafter is called."""
LAYER = "layers.0."
"""What the tensors of its layer begin with, behind the head's own prefix."""
PRODUCT, NORMS = "fc.weight", ("norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")
"""The parts beside its layer: the product over both inputs, and the norms of its output and of each input."""
FLUSH_ROWS = 512
"""Rows that wait at most before they are forwarded without a draft."""
_EXPERT = re.compile(r"^(.*\.experts)\.([0-9]{1,5})\.(gate|up|down)_proj\.weight$")


def check_head(folder: Path, config: Mapping[str, Any], structure: Structure) -> None:
    """Check that a checkpoint holds a head that is computed here.

    Raises:
        ModelConfigError: If it has none, or one of another kind.
        ModelWeightsError: If its tensors are packed.
    """
    text = text_config(config)
    stored = {inner: kind for name, (kind, _) in stored_tensors(folder).items() if (inner := head_name(name))}
    if not stored:
        raise ModelConfigError(
            f"{folder} holds no head for several tokens (no tensors named mtp.*); expected one for --drafter mtp. "
            "Folders converted by mlx-lm have lost it: use the published checkpoint, or another drafter"
        )
    layers = {match[0] for name in stored if (match := re.match(r"layers\.[0-9]+\.", name))}
    layer_count = text.get("mtp_num_hidden_layers")
    if not structure.family.hybrid or layers != {LAYER} or layer_count not in {None, 1}:
        raise ModelConfigError(
            f"{folder} holds a head for several tokens of {len(layers)} layers (mtp_num_hidden_layers {layer_count!r}, "
            f"model type {structure.model_type!r}); expected one layer of the Qwen3.5 or Qwen3-Next kind. Use another "
            "drafter"
        )
    if text.get("mtp_use_dedicated_embeddings"):
        raise ModelConfigError(
            f"the head for several tokens in {folder} has embeddings of its own (mtp_use_dedicated_embeddings); "
            "expected one that reads its target's. Use another drafter"
        )
    packed = sorted(name for name, kind in stored.items() if kind not in FLOATS)
    if packed:
        raise ModelWeightsError(
            f"tensor mtp.{packed[0]} in {folder} is of type {stored[packed[0]]} ({len(packed)} of the head's are); "
            f"expected {', '.join(sorted(FLOATS))}. Use another drafter"
        )


def check_parts(folder: Path, expected: Mapping[str, tuple[int, ...]], got: Mapping[str, tuple[int, ...]]) -> None:
    """Check the head's tensors by name and shape.

    Raises:
        ModelWeightsError: If one is missing, misshapen or not used.
    """
    for names, what in (
        (expected.keys() - got.keys(), "lacks"),
        (got.keys() - expected.keys(), "does not compute with"),
    ):
        if names:
            raise ModelWeightsError(
                f"the head for several tokens in {folder} {what} the tensors {sorted(names)[:4]} ({len(names)} in "
                "all); expected those of one of its target's layers. Fetch weights and config of the same model"
            )
    for name, shape in expected.items():
        if got[name] != shape:
            raise ModelWeightsError(
                f"tensor mtp.{name} in {folder} has shape {got[name]}; expected {shape} by its config.json. Fetch "
                "weights and config of the same model"
            )


def stacked(tensors: Mapping[str, Any], stack: Any, join: Any) -> dict[str, Any]:
    """Return the head's tensors with experts that lie one by one put into one tensor a side, as a layer keeps them.

    Args:
        tensors: By their names inside of the head.
        stack: Puts tensors behind each other on a new first axis.
        join: Puts two tensors behind each other on their first axis.
    """
    whole: dict[str, Any] = {}
    experts: dict[str, dict[int, dict[str, Any]]] = {}
    for name, tensor in tensors.items():
        if (match := _EXPERT.match(name)) is None:
            whole[name] = tensor
        else:
            experts.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = tensor
    for prefix, by_number in experts.items():
        ordered = [by_number[number] for number in sorted(by_number)]
        if any(sides.keys() != {"gate", "up", "down"} for sides in ordered):
            continue  # what is missing then is named
        whole[f"{prefix}.gate_up_proj"] = stack([join([sides["gate"], sides["up"]]) for sides in ordered])
        whole[f"{prefix}.down_proj"] = stack([sides["down"] for sides in ordered])
    return whole


def info_of(target: TargetInfo, parameters: int) -> DrafterInfo:
    """Return what the head is: its digest is its target's, in whose files it lies."""
    return DrafterInfo(MTP, target.digest, MTP, parameters, block_size=None)


class MtpModel(ABC):
    """A loaded head, bound to its target; ``open`` starts it on a sequence."""

    def __init__(self, target: TargetInfo, parameters: int) -> None:
        self._info = info_of(target, parameters)
        self._last_layer = target.layer_count - 1

    @property
    def info(self) -> DrafterInfo:
        """Name, digest and size."""
        return self._info

    @property
    def capture(self) -> tuple[int, ...]:
        """Return the target's last layer."""
        return (self._last_layer,)

    def open(self) -> Drafter:
        """Start with no rows, proposing the most likely tokens."""
        return self.start(None)

    def sampling(self, settings: Sampling) -> SampledModel:
        """Return the same head proposing by sampling, with the distribution of every proposal in its drafts."""
        return SampledModel(self, settings)

    @abstractmethod
    def start(self, settings: Sampling | None) -> Drafter:
        """Start a sequence without rows; with ``settings`` from the first draw of their seed."""


class MtpDrafter(LocalDrafter, ABC):
    """The head's rows of one sequence, and what waits to become rows."""

    def __init__(self, settings: Sampling | None) -> None:
        self._settings = settings
        self._uniforms = None if settings is None else Uniforms(settings.seed, "drafter")
        self.forwards = 0
        self._observed = 0
        self._waiting: list[Any] = []
        self._ids: list[int] = []
        """The tokens of the positions that wait."""
        self._last: Any = None

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        """Chain ``count`` tokens behind the bonus; they stay on the device."""
        del wait_s
        ObservationError.check(position, self._observed)
        if self._waiting:
            ids = self._sent([*self._ids[1:], bonus])
            self._last = self._forward(ids, self._normed(self._joined(self._waiting)))[-1:]
            self._waiting, self._ids = [], []
        hidden, proposed = self._last, []
        for left in range(count - 1, -1, -1):
            token, probs = self._proposed(hidden)
            proposed.append((token, probs))
            if left:
                hidden = self._forward(token, hidden)
        self._crop(position)
        tokens, probs = (self._joined([part[side] for part in proposed]) for side in range(2))
        self._begin(tokens)
        return Draft(tokens=tokens, count=count, probs=probs)

    def observe(self, start: int, tokens: tuple[int, ...], features: Features) -> None:
        """Keep what the target made of committed positions until a draft needs their rows.

        Raises:
            ObservationError: If the positions do not follow those observed so far.
        """
        ObservationError.check(start, self._observed)
        self._observed += len(tokens)
        self._waiting.append(features)
        self._ids.extend(tokens)
        if len(self._ids) > FLUSH_ROWS:
            # The last one waits for the token behind it.
            rows = self._joined(self._waiting)
            self._forward(self._sent(self._ids[1:]), self._normed(rows[:-1]))
            self._waiting, self._ids = [rows[-1:]], self._ids[-1:]

    def rewind(self, length: int) -> int:
        """Go back to the first ``length`` positions, or one less where the last one's row is made; return how many.

        Where it is one less, the token that was there comes again.
        """
        begun = self._observed - len(self._ids)
        if begun < length:
            rows = length - begun
            if self._waiting:
                self._waiting, self._ids = [self._joined(self._waiting)[:rows]], self._ids[:rows]
            self._observed = min(length, self._observed)
            return self._observed
        self._observed = max(0, length - 1)
        self._waiting, self._ids, self._last = [], [], None
        self._crop(self._observed)
        return self._observed

    def _forward(self, ids: Any, features: Any) -> Any:
        """Append a row for each id; return what they put out, ``[N, D]``."""
        self.forwards += 1
        return self._rows(ids, features)

    def _drawn_with(self) -> tuple[Sampling, list[float]] | None:
        """Return how the next token is drawn and the uniform for it, None where the most likely one is taken."""
        if self._settings is None or self._uniforms is None:
            return None
        return self._settings, self._uniforms.take(1)

    @abstractmethod
    def _sent(self, ids: list[int]) -> Any:
        """Return ids on the device."""

    @abstractmethod
    def _joined(self, parts: list[Any]) -> Any:
        """Return arrays behind each other on their first axis, None where they are none."""

    @abstractmethod
    def _normed(self, features: Any) -> Any:
        """Return what the target's last layer put out as its head reads it."""

    @abstractmethod
    def _rows(self, ids: Any, features: Any) -> Any:
        """Append a row for each id ``[N]`` and what stands before it ``[N, D]``; return what they put out."""

    @abstractmethod
    def _proposed(self, hidden: Any) -> tuple[Any, Any]:
        """Return the token that a row ``[1, D]`` says, ``[1]``, and what it was drawn from, ``[1, V]`` or None."""

    @abstractmethod
    def _crop(self, length: int) -> None:
        """Keep the first ``length`` rows."""

    @abstractmethod
    def _begin(self, tokens: Any) -> None:
        """Let what was queued be computed."""
