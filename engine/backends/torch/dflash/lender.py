"""What a DFlash drafter borrows of a target on torch: embedding rows, head, dtype and sizes, read from those tensors.

transformers loads nothing less than a whole model, so these are read by name. Every other tensor stays in its file.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn import functional

from engine import checkpoint
from engine.errors import ModelWeightsError
from engine.huggingface import check_finite
from engine.reader import Checkpoint
from engine.types import TargetInfo

EMBEDDING, HEAD = "embed_tokens", "lm_head"


class LentFamily(Protocol):
    """Embedding and head of a model."""

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows ``[S, D]``."""

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits of normed hidden states."""


class LendingTarget(Protocol):
    """Whoever has them: a whole target, or `TorchLender`."""

    device: torch.device
    dtype: torch.dtype

    @property
    def family(self) -> LentFamily:
        """Embedding and head."""

    @property
    def info(self) -> TargetInfo:
        """Sizes and dtype."""


class TorchLender:
    """The lent tensors of a target, and the two products with them; it is its own family and decodes nothing."""

    def __init__(self, embedding: torch.Tensor, head: torch.Tensor, soft_cap: float | None, info: TargetInfo) -> None:
        self.device, self.dtype = embedding.device, embedding.dtype
        self.info = info
        self._embedding, self._head, self._soft_cap = embedding, head, soft_cap

    @property
    def family(self) -> TorchLender:
        """Embedding and head."""
        return self

    def embed(self, ids_S: torch.Tensor) -> torch.Tensor:
        """Return raw embedding rows ``[S, D]``, without the model's own scale."""
        return functional.embedding(ids_S, self._embedding)

    def head(self, hidden: torch.Tensor, soft_capped: bool = True) -> torch.Tensor:
        """Return logits of normed hidden states, soft-capped as the model defines unless told otherwise."""
        logits, cap = functional.linear(hidden, self._head), self._soft_cap
        return torch.tanh(logits / cap) * cap if soft_capped and cap is not None else logits

    def measured_bytes(self) -> int:
        """Return the bytes of what is held; a head that is the embedding counts once."""
        held = {tensor.data_ptr(): tensor.untyped_storage().nbytes() for tensor in (self._embedding, self._head)}
        return sum(held.values())


def read_lender(read: Checkpoint, dtype: str, device: torch.device) -> TorchLender:
    """Read the lent tensors of a folder onto a device; ``auto`` is the dtype that its config names, or theirs.

    Raises:
        ModelWeightsError: If one is missing, there are several, or it is misshapen, not finite or not readable.
    """
    folder, text = read.folder, checkpoint.text_config(read.config)
    wanted = (EMBEDDING,) if read.structure.tied else (EMBEDDING, HEAD)
    tensors, parameters = _read(folder, wanted, device)
    embedding, head = tensors[EMBEDDING], tensors[wanted[-1]]
    if not (embedding.ndim == 2 and embedding.shape == head.shape and embedding.shape[1] == text["hidden_size"]):
        raise ModelWeightsError(
            f"{folder}: embedding {tuple(embedding.shape)} and head {tuple(head.shape)}; expected one row of "
            f"{text['hidden_size']} numbers a token. Fetch weights and config of the same model."
        )
    check_finite(tensors, folder)
    kind = getattr(torch, read.dtype or "", embedding.dtype) if dtype == "auto" else getattr(torch, dtype)
    # A head that is the embedding stays one tensor.
    cast = {id(tensor): tensor.to(kind) for tensor in (embedding, head)}
    info = TargetInfo(
        name=read.name,
        digest="",
        format="huggingface",
        parameters=parameters,
        vocab_size=int(embedding.shape[0]),
        hidden_size=int(embedding.shape[1]),
        layer_count=len(read.structure.kinds),
        max_positions=read.positions,
        sliding_window=read.structure.window,
        dtype=str(kind).removeprefix("torch."),
        stop_ids=read.stop_ids,
    )
    return TorchLender(cast[id(embedding)], cast[id(head)], read.structure.soft_cap, info)


def _read(folder: Path, wanted: tuple[str, ...], device: torch.device) -> tuple[dict[str, torch.Tensor], int]:
    """Return the tensors whose names end in ``PART.weight`` by part, and how many numbers all tensors have."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, list[tuple[str, Any]]] = {part: [] for part in wanted}
    numbers = 0
    with ExitStack() as stack:
        try:
            for file in checkpoint.weight_files(folder):
                stream: Any = stack.enter_context(safe_open(file, framework="pt", device=str(device)))
                for name in stream.keys():  # noqa: SIM118 - a file, not a mapping
                    numbers += torch.Size(stream.get_slice(name).get_shape()).numel()
                    part = name.removesuffix(".weight").rpartition(".")[2]
                    if part in found and name.endswith(".weight"):
                        found[part].append((name, stream))
            for part, places in found.items():
                if len(places) != 1:
                    names = [name for name, _ in places]
                    raise ModelWeightsError(
                        f"{folder} has {len(places)} tensors {part}.weight {names[:4]}; expected one, which a drafter "
                        "borrows. Serve beside the whole target, or fetch its files again."
                    )
            return {part: stream.get_tensor(name) for part, ((name, stream),) in found.items()}, numbers
        except (OSError, SafetensorError) as error:
            raise ModelWeightsError(f"cannot read the weights in {folder}: {error}; fetch them again") from error
