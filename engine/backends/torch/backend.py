"""The torch backend's entry: loading, checking and describing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from engine import checkpoint
from engine.backends.torch import accept, sampling
from engine.backends.torch.accept import GreedyAccept
from engine.backends.torch.caches import GROW_ROWS
from engine.backends.torch.clock import TorchClock
from engine.backends.torch.dflash.drafter import TorchDFlash
from engine.backends.torch.dflash.lender import LendingTarget, TorchLender, read_lender
from engine.backends.torch.dflash.stored import read_drafter_tensors
from engine.backends.torch.graphs.recording import CudaGraphs, too_old
from engine.backends.torch.graphs.slots import Slots
from engine.backends.torch.mtp import TorchMtp
from engine.backends.torch.native import TorchNative
from engine.backends.torch.probe import OLDEST_TRANSFORMERS, fits
from engine.backends.torch.rows import LIBRARY, packed_features, packed_float8, unpacked_features, unpacked_float8
from engine.backends.torch.target import TorchTarget
from engine.backends.torch.trial import refusal
from engine.drafters import dflash
from engine.errors import BackendMissingError, ModelConfigError, UsageError
from engine.huggingface import check_finite, check_opened, open_causal, read_tensors
from engine.reader import Checkpoint, model_name, read_checkpoint
from engine.restoration.elsewhere import ElsewhereRestorer, elsewhere
from engine.restoration.restorers import FTheta, f_theta, lent_f_theta
from engine.restoration.rows import Latents
from engine.structure.experts import check_experts
from engine.structure.memory import DeviceMemory
from engine.structure.stored import FLOATS, check_stored
from engine.types import FLOAT8, BlasInfo, Features, Forward, Ids, Proposal, Rows, TargetInfo
from engine.verification.rejection import Sampling
from engine.verification.sampled import SamplingAccept

WARM_UP_ROWS = 17
"""Block lengths run once on an accelerator before anything is timed: the longest published block and the bonus."""
DTYPES = ("float32", "bfloat16", "float16")


class TorchBackend:
    """torch on one device, fp32 on a CPU and the checkpoint's own dtype on an accelerator unless told otherwise."""

    name = "torch"

    def __init__(self, device: str | None = None, dtype: str | None = None, cuda_graphs: str = "auto") -> None:
        """Choose a device, and whether forwards are recorded: ``on``, ``off``, or ``auto`` where they pay.

        Raises:
            BackendMissingError: If transformers is too old, or the device is not there or has no graphs.
        """
        check_transformers(version("transformers"))
        self._device = pick_device(device)
        self._graphs, self._must_pay = wants_graphs(cuda_graphs, self._device), cuda_graphs == "auto"
        self._dtype = dtype or ("float32" if self._device.type == "cpu" else "auto")
        check_dtype(self._dtype, self._device)
        self.clock = TorchClock(self._device)

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda:<name of the card>``."""
        return "cpu" if self._device.type == "cpu" else f"cuda:{torch.cuda.get_device_name(self._device)}"

    def check_tensors(self, folder: Path) -> None:
        """Check that a folder's tensors are those of transformers' module, by name and shape; no weights are read.

        Raises:
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not used.
        """
        open_causal(folder, self._dtype, "meta", attention_of(self._checked(folder)))

    def load_target(self, folder: Path) -> TorchTarget:
        """Load a Hugging Face folder onto the device.

        Raises:
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        read = self._checked(folder)
        module = open_causal(folder, self._dtype, self._device, attention_of(read))
        weight = module.get_input_embeddings().weight
        info = TargetInfo(
            name=read.name,
            digest=checkpoint.folder_digest(folder),
            format="huggingface",
            parameters=sum(int(parameter.numel()) for parameter in module.parameters()),
            vocab_size=int(weight.shape[0]),
            hidden_size=int(weight.shape[1]),
            layer_count=len(read.structure.kinds),
            max_positions=read.positions,
            sliding_window=read.structure.window,
            dtype=str(weight.dtype).removeprefix("torch."),
            stop_ids=read.stop_ids,
            reading=read.reading,
        )
        target = TorchTarget(module, info)
        if self._device.type != "cpu":
            target.warm_up(WARM_UP_ROWS)
        return self._graphed(target)

    def load_lender(self, folder: Path) -> TorchLender:
        """Load of a target what a DFlash drafter borrows: embedding rows, head, dtype and sizes; no digest.

        Raises:
            ModelConfigError: If the family or a config value cannot be honoured.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        return read_lender(self._checked(folder), self._dtype, self._device)

    def _checked(self, folder: Path) -> Checkpoint:
        """Return what a folder says that torch can compute with here."""
        read = read_checkpoint(folder)
        if "quantization" in read.config:
            raise ModelConfigError(
                f"{folder} holds weights quantised by mlx-lm; torch cannot read them. Use --backend mlx."
            )
        check_opened(read.config, folder)
        check_experts(folder, read.config)
        read.check_tensors()
        if self._device.type == "cpu":
            check_stored(folder, "torch on cpu", FLOATS | {"F64"})
        return read

    def random_target(self, shape: str) -> TorchTarget:
        """Build a target of published shapes with random weights, bfloat16 on an accelerator.

        Raises:
            UsageError: If there is no such shape.
        """
        from engine.backends.torch.random_target import random_target

        dtype = torch.bfloat16 if self._dtype == "auto" else getattr(torch, self._dtype)
        return self._graphed(random_target(shape, self._device, dtype))

    def load_dflash(self, folder: Path, target: LendingTarget) -> TorchDFlash:
        """Load a DFlash drafter, v1 or 2, and check that it belongs to ``target``.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was made for another target.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        config = dflash.parse(checkpoint.read_config(folder))
        dflash.check_fits(config, target.info)
        check_stored(folder, "a drafter on torch", FLOATS | {"F64"}, affine=True)
        tensors = read_drafter_tensors(folder, config)
        parameters = sum(int(tensor.numel()) for tensor in tensors.values())
        info = dflash.info_of(config, model_name(folder), checkpoint.folder_digest(folder), parameters)
        model = TorchDFlash(config, tensors, target, info)
        if self._device.type != "cpu":
            model.warm_up()
        return model

    def load_mtp(self, folder: Path, target: TorchTarget) -> TorchMtp:
        """Load the head for several tokens from a target's own folder.

        Raises:
            ModelWeightsError: If tensors are missing, misshapen, not used or not finite.
        """
        return TorchMtp(folder, target)

    def proposals(self, probs: Rows, most: int) -> list[Proposal]:
        """Return for each row what can be drawn from it."""
        return sampling.proposals(probs, most)

    def drawn(self, proposals: list[Proposal], vocab_size: int, uniforms: list[float]) -> tuple[Ids, Rows]:
        """Return an id drawn from each proposal, and the proposals as rows."""
        return sampling.drawn(proposals, vocab_size, uniforms, self._device)

    def load_restoration(self, folder: Path, target: TorchTarget, drafter: TorchDFlash) -> FTheta:
        """Load an f_theta, and check that it belongs to ``target`` and ``drafter``.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was fitted for others.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        tensors = self._restoring_tensors(folder)
        return f_theta(folder, tensors, target, drafter, lambda given: given.to(target.device, target.dtype))

    def lend_restoration(self, folder: Path, lender: LendingTarget, drafter: TorchDFlash) -> Callable[[], Latents]:
        """Load an f_theta for a target elsewhere; return what begins to keep what rows of one sequence are made of.

        Raises:
            ModelConfigError: If its config cannot be honoured.
            ModelMismatchError: If it was fitted for another drafter.
            ModelWeightsError: If tensors are missing, misshapen or not finite.
        """
        tensors, device, dtype = self._restoring_tensors(folder), self._device, lender.dtype
        lent = lent_f_theta(folder, tensors, drafter, lambda given: given.to(device, dtype))
        return lambda: Latents(lent, LIBRARY, GROW_ROWS, settle=True)

    def restored_elsewhere(self, served: Any, target: TorchTarget) -> ElsewhereRestorer:
        """Return what has rows made by an f_theta that is served.

        Raises:
            ModelMismatchError: If it was fitted for another target.
        """
        return elsewhere(served, self, target, lambda given: given.to(target.device, target.dtype))

    def _restoring_tensors(self, folder: Path) -> dict[str, torch.Tensor]:
        check_stored(folder, "an f_theta on torch", FLOATS | {"F64"}, affine=True)
        tensors = read_tensors(folder)
        check_finite(tensors, folder)
        return tensors

    def _graphed(self, target: TorchTarget) -> TorchTarget:
        if self._graphs:
            target.slots = Slots(partial(CudaGraphs, self._device), WARM_UP_ROWS)
            target.slots.refused = too_old(torch.__version__)
            if target.slots.refused is None:
                target.slots.refused = refusal(target, self.clock, WARM_UP_ROWS, must_pay=self._must_pay)
        return target

    def row_dtype(self, target: LendingTarget) -> str:
        """Return the name of the dtype of a target's hidden states."""
        return str(target.dtype).removeprefix("torch.")

    def packed(self, features: list[Features], dtype: str) -> bytes:
        """Return the bits of features in a dtype."""
        rows = features[0] if len(features) == 1 else torch.cat(features)
        return packed_float8(rows) if dtype == FLOAT8 else packed_features(rows, getattr(torch, dtype))

    def unpacked(self, data: bytearray, shape: tuple[int, int], dtype: str) -> Features:
        """Return features of such bits on the device."""
        if dtype == FLOAT8:
            return unpacked_float8(data, shape, self._device)
        return unpacked_features(data, shape, getattr(torch, dtype), self._device)

    def greedy(self, target: TorchTarget) -> GreedyAccept:
        """Return the greedy rule for a target's vocabulary."""
        return GreedyAccept(target.info.vocab_size)

    def sampling(self, target: TorchTarget, settings: Sampling) -> SamplingAccept:
        """Return a sampling rule: one per sequence, because it owns the sequence's draws."""
        del target
        return SamplingAccept(settings, sampling.decide, accept.margin)

    def native(self, target: TorchTarget) -> TorchNative:
        """Return transformers' own decoding."""
        return TorchNative(target)

    def resident(self, target: TorchTarget) -> AbstractContextManager[None]:
        """Do nothing: torch's weights stay where they were put."""
        del target
        return nullcontext()

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
        """Do nothing: torch's threads are the process's."""

    def memory(self) -> DeviceMemory | None:
        """Return what is free on the card or cached by torch, None on a CPU."""
        if self._device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(self._device)
        # The driver takes torch's own freed blocks for taken, which the next tensor gets.
        free += torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        wide = None if self._dtype == "auto" else int(getattr(torch, self._dtype).itemsize)
        return DeviceMemory("cuda", int(free), int(total), wide)

    def allocator_active_bytes(self) -> int | None:
        """Return the CUDA allocator's live bytes; torch counts nothing on a CPU."""
        return int(torch.cuda.memory_allocated(self._device)) if self._device.type == "cuda" else None

    def keep_no_freed_memory(self) -> None:
        """Do nothing: the CUDA counter counts live tensors, whatever the allocator keeps beside them."""

    def versions(self) -> dict[str, str]:
        """Return the versions of torch and transformers."""
        return {name: version(name) for name in ("torch", "transformers")}

    def blas(self) -> BlasInfo | None:
        """Say which matrix library the CPU build was linked with, None on an accelerator."""
        if self._device.type != "cpu":
            return None
        built = torch.__config__.show()
        name = next((label for label in ("mkl", "openblas", "accelerate") if f"BLAS_INFO={label}" in built), "unknown")
        return BlasInfo(name=name, evidence="BLAS_INFO of torch.__config__.show()")


def attention_of(read: Checkpoint) -> str:
    """Return which of transformers' attentions a target is opened with: only the eager one computes sinks."""
    return "eager" if read.structure.family.sinks else "sdpa"


def check_transformers(found: str) -> None:
    """Check the transformers version.

    Raises:
        BackendMissingError: If it is older than what the layer-by-layer forward was written for.
    """
    if not fits(found)[0]:
        raise BackendMissingError(
            f"transformers {found} is installed; the torch backend needs {OLDEST_TRANSFORMERS} or later. "
            f"Run `pip install -U 'transformers>={OLDEST_TRANSFORMERS}'`."
        )


def pick_device(wanted: str | None) -> torch.device:
    """Return the device to run on: what was asked for, else CUDA when there is one, else the CPU.

    Raises:
        BackendMissingError: If the device asked for is not there.
    """
    if wanted is None:
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted not in {"cpu", "cuda"} and not wanted.startswith("cuda:"):
        raise BackendMissingError(f"device {wanted!r}; the torch backend knows cpu and cuda. Use --device cpu.")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise BackendMissingError(
            f"device {wanted!r} was asked for; this torch ({torch.__version__}) finds no NVIDIA device. "
            "Use --device cpu, or a CUDA build of torch on a machine with a card."
        )
    return torch.device(wanted)


def check_dtype(name: str, device: torch.device) -> None:
    """Check with a product that a device computes in a dtype; ``auto`` is the folder's own.

    Raises:
        BackendMissingError: If it does not.
        UsageError: If there is no such dtype.
    """
    if name == "auto":
        return
    if name not in DTYPES:
        raise UsageError(f"dtype {name!r}; expected one of {', '.join(DTYPES)} or auto")
    try:
        ones = torch.ones((2, 2), dtype=getattr(torch, name), device=device)
        (ones @ ones).sum().item()
    except (RuntimeError, TypeError) as error:
        raise BackendMissingError(
            f"device {device} does not compute in {name}: {error}. Use --dtype float32, or another device."
        ) from error


def wants_graphs(asked: str, device: torch.device) -> bool:
    """Return whether forwards are to be recorded.

    Raises:
        BackendMissingError: If they must be and the device cannot.
    """
    if asked == "on" and device.type != "cuda":
        raise BackendMissingError(
            f"--cuda-graphs on with device {device.type}; expected an NVIDIA device. Use --device cuda on a machine "
            "with a card, or leave the option out."
        )
    return asked != "off" and device.type == "cuda"
