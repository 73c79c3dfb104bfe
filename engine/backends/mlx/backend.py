"""The MLX backend's entry: loading, checking and describing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import get_total_parameters

from engine import checkpoint
from engine.backends.mlx import accept, sampling
from engine.backends.mlx.accept import GreedyAccept
from engine.backends.mlx.blas.library import loaded_blas, use_fast_blas
from engine.backends.mlx.caches import GROW_ROWS
from engine.backends.mlx.clock import MlxClock
from engine.backends.mlx.dflash.affine import values_of
from engine.backends.mlx.dflash.drafter import MlxDFlash
from engine.backends.mlx.fusing import trace_without_compiler
from engine.backends.mlx.models.config import completed, settle_embedding, settle_positions, settle_windows
from engine.backends.mlx.models.experts import check_expert_products
from engine.backends.mlx.models.opening import open_module
from engine.backends.mlx.mtp import MlxMtp
from engine.backends.mlx.native import MlxNative
from engine.backends.mlx.rows import LIBRARY, packed_features, packed_float8, unpacked_features, unpacked_float8
from engine.backends.mlx.target import MlxTarget
from engine.backends.mlx.wired import WiredWeights
from engine.drafters import dflash
from engine.errors import ModelWeightsError, UsageError
from engine.reader import Checkpoint, model_name, read_checkpoint
from engine.restoration.elsewhere import ElsewhereRestorer, elsewhere
from engine.restoration.restorers import FTheta, f_theta, lent_f_theta
from engine.restoration.rows import Latents
from engine.structure.experts import check_experts
from engine.structure.memory import DeviceMemory, metal_memory
from engine.structure.stored import check_stored
from engine.types import FLOAT8, BlasInfo, Features, Forward, Ids, Proposal, Rows, TargetInfo
from engine.verification.rejection import Sampling
from engine.verification.sampled import SamplingAccept

DTYPES = ("float32", "bfloat16", "float16")
TEMPORARY_FOLDERS = ("TMPDIR", "TMP", "TEMP", "TEMPDIR")
"""The variables that C++ reads, the first that is set, for the folder of temporary files."""
LENT = frozenset({"embed_tokens", "lm_head"})
"""Of the names of a target's tensors: what a DFlash drafter borrows."""


class MlxBackend:
    """MLX on its default device."""

    name = "mlx"

    def __init__(self, dtype: str | None = None, wired: WiredWeights | None = None) -> None:
        """Choose the dtype of the weights; None or ``auto`` is float32 where the config names it, else as stored.

        Raises:
            UsageError: If there is no such dtype, or no folder for temporary files.
        """
        self._dtype = None if dtype in {None, "auto"} else _dtype(str(dtype))
        self._wired = wired or WiredWeights()
        self.clock = MlxClock()
        if self.device == "cpu":
            _check_temporary_folder()
            use_fast_blas()
            trace_without_compiler()

    @property
    def device(self) -> str:
        """``metal`` on an Apple GPU, ``cuda`` or ``cpu`` elsewhere."""
        if mx.default_device().type == mx.DeviceType.cpu:
            return "cpu"
        return "metal" if mx.metal.is_available() else "cuda"

    def check_tensors(self, folder: Path) -> None:
        """Check that a folder's tensors are those of mlx-lm's module, by name and shape; no weights are read.

        Raises:
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not used.
        """
        self._opened(folder)

    def load_target(self, folder: Path) -> MlxTarget:
        """Load a Hugging Face or mlx-lm folder, quantised or not.

        Raises:
            BackendMissingError: If the device does not multiply experts in their dtype.
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        read, module = self._opened(folder)
        check_expert_products(module, self.device)
        _check_finite(dict(tree_flatten(module.parameters())), folder)
        settle_windows(module, read.structure)
        settle_positions(module, read.structure)
        settle_embedding(module, read.structure)
        return self._target(read, module, checkpoint.folder_digest(folder))

    def load_lender(self, folder: Path) -> MlxTarget:
        """Load of a target what a DFlash drafter borrows: embedding rows, head, dtype and sizes; no digest.

        Every other tensor stays in its file: MLX reads one when it is computed with.

        Raises:
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        read, module = self._opened(folder)
        lent = {name: one for name, one in tree_flatten(module.parameters()) if LENT & set(name.split("."))}
        _check_finite(lent, folder)
        return self._target(read, module, "")

    def _opened(self, folder: Path) -> tuple[Checkpoint, Any]:
        """Return what a folder says, and its module; nothing of its tensors is read yet."""
        read = read_checkpoint(folder)
        added = completed(read.config, read.structure)
        check_experts(folder, read.config)
        read.check_tensors()
        check_stored(folder, f"mlx on {self.device}")
        return read, open_module(folder, self._dtype, added)

    def _target(self, read: Checkpoint, module: Any, digest: str) -> MlxTarget:
        embedding = getattr(module, "language_model", module).model.embed_tokens
        like = embedding(mx.arange(1))
        info = TargetInfo(
            name=read.name,
            digest=digest,
            format="mlx-lm" if "quantization" in read.config else "huggingface",
            parameters=int(get_total_parameters(module)),
            vocab_size=int(embedding.weight.shape[0]),
            hidden_size=int(like.shape[-1]),
            layer_count=len(module.layers),
            max_positions=read.positions,
            sliding_window=read.structure.window,
            dtype=_dtype_name(read, like),
            stop_ids=read.stop_ids,
            reading=read.reading,
        )
        return MlxTarget(module, info, read.structure)

    def load_dflash(self, folder: Path, target: MlxTarget) -> MlxDFlash:
        """Load a DFlash drafter, v1 or 2, and check that it belongs to ``target``.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was made for another target.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        config = dflash.parse(checkpoint.read_config(folder))
        dflash.check_fits(config, target.info)
        check_stored(folder, "a drafter on mlx", affine=True)
        tensors = dflash.dense_tensors(config, _tensors(folder), values_of)
        _check_finite(tensors, folder)
        parameters = sum(int(tensor.size) for tensor in tensors.values())
        info = dflash.info_of(config, model_name(folder), checkpoint.folder_digest(folder), parameters)
        return MlxDFlash(config, tensors, target, info)

    def load_mtp(self, folder: Path, target: MlxTarget) -> MlxMtp:
        """Load the head for several tokens from a target's own folder.

        Raises:
            ModelWeightsError: If tensors are missing, misshapen, not used or not finite.
        """
        model = MlxMtp(folder, target)
        _check_finite(model.tensors, folder)
        return model

    def row_dtype(self, target: MlxTarget) -> str:
        """Return the name of the dtype of a target's hidden states."""
        return str(target.dtype).removeprefix("mlx.core.")

    def packed(self, features: list[Features], dtype: str) -> bytes:
        """Return the bits of features in a dtype."""
        rows = features[0] if len(features) == 1 else mx.concatenate(features)
        return packed_float8(rows) if dtype == FLOAT8 else packed_features(rows, _dtype(dtype))

    def unpacked(self, data: bytearray, shape: tuple[int, int], dtype: str) -> Features:
        """Return features of such bits."""
        return unpacked_float8(data, shape) if dtype == FLOAT8 else unpacked_features(data, shape, _dtype(dtype))

    def proposals(self, probs: Rows, most: int) -> list[Proposal]:
        """Return for each row what can be drawn from it."""
        return sampling.proposals(probs, most)

    def drawn(self, proposals: list[Proposal], vocab_size: int, uniforms: list[float]) -> tuple[Ids, Rows]:
        """Return an id drawn from each proposal, and the proposals as rows."""
        return sampling.drawn(proposals, vocab_size, uniforms)

    def load_restoration(self, folder: Path, target: MlxTarget, drafter: MlxDFlash) -> FTheta:
        """Load an f_theta, and check that it belongs to ``target`` and ``drafter``.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was fitted for others.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        tensors = _restoring_tensors(folder)
        return f_theta(folder, tensors, target, drafter, lambda given: given.astype(target.dtype))

    def lend_restoration(self, folder: Path, lender: MlxTarget, drafter: MlxDFlash) -> Callable[[], Latents]:
        """Load an f_theta for a target elsewhere; return what begins to keep what rows of one sequence are made of.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was fitted for another drafter.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        dtype = lender.dtype
        lent = lent_f_theta(folder, _restoring_tensors(folder), drafter, lambda given: given.astype(dtype))
        return lambda: Latents(lent, LIBRARY, GROW_ROWS, settle=True)

    def restored_elsewhere(self, served: Any, target: MlxTarget) -> ElsewhereRestorer:
        """Return what has rows made by an f_theta that is served.

        Raises:
            ModelMismatchError: If it was fitted for another target.
        """
        return elsewhere(served, self, target, lambda given: given.astype(target.dtype))

    def greedy(self, target: MlxTarget) -> GreedyAccept:
        """Return the greedy rule for a target's vocabulary."""
        return GreedyAccept(target.info.vocab_size)

    def sampling(self, target: MlxTarget, settings: Sampling) -> SamplingAccept:
        """Return a sampling rule: one per sequence, because it owns the sequence's draws."""
        del target
        return SamplingAccept(settings, sampling.decide, accept.margin)

    def native(self, target: MlxTarget) -> MlxNative:
        """Return mlx-lm's own decoding."""
        return MlxNative(target, self._wired)

    def resident(self, target: MlxTarget) -> AbstractContextManager[None]:
        """Keep a target's weights wired on Metal while it decodes."""
        return self._wired.holding(target.module)

    def gaps(self, forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """Return by row how far the best logit is above that of ``tokens[row]``."""
        return accept.gaps(forward, tokens)

    def likeliest(self, forward: Forward) -> tuple[int, ...]:
        """Return by row the id that the target holds likeliest."""
        return accept.likeliest(forward)

    def log_probabilities(self, forward: Forward, tokens: tuple[int, ...]) -> tuple[float, ...]:
        """Return by row the natural logarithm of the probability of ``tokens[row]``."""
        return accept.log_probabilities(forward, tokens)

    def apart(self, one: Forward, other: Forward) -> float:
        """Return the largest difference between the logits of two forwards."""
        return accept.apart(one, other)

    def leave_thread(self) -> None:
        """End the streams of the calling thread: the process aborts at its exit where one outlives its thread."""
        mx.synchronize()
        mx.clear_streams()

    def memory(self) -> DeviceMemory | None:
        """Return Metal's recommended working set, None elsewhere."""
        wide = None if self._dtype is None else self._dtype.size
        return metal_memory(dict(mx.device_info()), wide) if self.device == "metal" else None

    def allocator_active_bytes(self) -> int | None:
        """Return MLX's live bytes."""
        return int(mx.get_active_memory())

    def keep_no_freed_memory(self) -> None:
        """Turn MLX's cache of freed buffers off for this process."""
        mx.set_cache_limit(0)

    def versions(self) -> dict[str, str]:
        """Return the versions of mlx and mlx-lm."""
        return {name: version(name) for name in ("mlx", "mlx-lm")}

    def blas(self) -> BlasInfo | None:
        """Say which BLAS the CPU backend's products run on, from the process itself."""
        return loaded_blas() if self.device == "cpu" else None


def _tensors(folder: Path) -> dict[str, mx.array]:
    """Return the arrays of a folder's files, or raise ModelWeightsError."""
    tensors: dict[str, mx.array] = {}
    for file in checkpoint.weight_files(folder):
        try:
            loaded: Any = mx.load(str(file))
        except RuntimeError as error:
            raise ModelWeightsError(f"cannot read {file}: {error}; fetch the file again") from error
        tensors |= loaded
    return tensors


def _check_temporary_folder() -> None:
    """Check where MLX compiles kernels for a CPU: unlike Python it looks nowhere else when the name is wrong.

    Raises:
        UsageError: If the environment names a folder for temporary files that is none.
    """
    for name in TEMPORARY_FOLDERS:
        if name in os.environ:
            if not Path(os.environ[name]).is_dir():
                raise UsageError(
                    f"{name} is {os.environ[name]!r}, which is no folder; let it name one to write in, or unset it"
                )
            return


def _dtype(name: str) -> mx.Dtype:
    """Return a dtype that weights may have, or raise UsageError."""
    if name not in DTYPES:
        raise UsageError(f"dtype {name!r}; expected one of {', '.join(DTYPES)} or auto")
    return getattr(mx, name)


def _restoring_tensors(folder: Path) -> dict[str, mx.array]:
    check_stored(folder, "an f_theta on mlx", affine=True)
    tensors = _tensors(folder)
    _check_finite(tensors, folder)
    return tensors


def _check_finite(tensors: Mapping[str, mx.array], folder: Path) -> None:
    """Raise when a floating tensor holds NaN or infinity; one read for all of them."""
    floating = {name: tensor for name, tensor in tensors.items() if mx.issubdtype(tensor.dtype, mx.floating)}
    verdicts: Any = mx.stack([mx.all(mx.isfinite(tensor)) for tensor in floating.values()]).tolist()
    bad = [name for name, fine in zip(floating, verdicts, strict=True) if not fine]
    if bad:
        raise ModelWeightsError(f"{folder} holds NaN or infinite values in {bad[:4]} ({len(bad)} tensors in all)")


def _dtype_name(read: Checkpoint, rows: mx.array) -> str:
    return read.quantisation or str(rows.dtype).removeprefix("mlx.core.")
