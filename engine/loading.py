"""The composition root: the only module that imports a backend, and only inside a function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from engine.checkpoint import TOKENIZER, folder_digest, read_config, resolve_model
from engine.digests import file_digest
from engine.drafters.dflash import check_causal, is_dflash
from engine.drafters.dflash import parse as parse_dflash
from engine.drafters.draft_model import DraftModel, check_fits
from engine.drafters.mtp import MTP, check_head
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.drafters.several import several
from engine.errors import (
    BackendMissingError,
    ModelConfigError,
    ModelMismatchError,
    ModelNotFoundError,
    SessionError,
    UsageError,
    install_remedy,
    needs_extra,
)
from engine.huggingface import take_torch_in
from engine.protocols import Accept, Backend, DrafterModel, NativeDecoder, TargetModel
from engine.reader import model_name, read_checkpoint
from engine.structure.memory import check_memory
from engine.tokenizer import read_tokenizer
from engine.types import RestorationInfo

Loaded = TypeVar("Loaded")
BACKENDS = ("mlx", "torch")
NGRAM = "ngram"
"""What prompt lookup is called, which needs no folder."""
ELSEWHERE = "grpc:"
SERVED_S = 2.0
"""How long a drafter that is named may take to say what it is, before decoding begins without it."""
"""What a drafter begins with that is served in another process; the address follows."""

__all__ = ["BACKENDS", "Engine", "known_drafter", "load_backend", "open_engine", "own_drafter", "resolve_model"]


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded target with everything that decodes it."""

    backend: Backend
    target: TargetModel
    drafter: DrafterModel
    accept: Accept
    native: NativeDecoder
    folder: Path
    restoration: RestorationInfo | None = None

    def resident(self) -> AbstractContextManager[None]:
        """Return what keeps the target's weights in the accelerator's memory while it decodes."""
        return self.backend.resident(self.target)


def load_backend(name: str, device: str | None = None, dtype: str | None = None, cuda_graphs: str = "auto") -> Backend:
    """Import a backend; device and graphs are choices of torch alone, None and ``auto`` leave all of them to it.

    Raises:
        BackendMissingError: If its library is not installed, its shared objects do not load or the device is not there.
        UsageError: If there is no backend of that name or it has no such choice.
    """
    if name not in BACKENDS:
        raise UsageError(f"unknown backend {name!r}; expected one of {', '.join(BACKENDS)}")
    if name == "mlx" and device:
        raise UsageError("--device chooses for --backend torch; MLX uses its default device as it is")
    if name == "mlx" and cuda_graphs == "on":
        raise UsageError("--cuda-graphs on is a choice for --backend torch on an NVIDIA device; leave it out for mlx")
    try:
        if name == "mlx":
            from engine.backends.mlx.backend import MlxBackend

            return MlxBackend(dtype)
        take_torch_in()
        from engine.backends.torch.backend import TorchBackend

        return TorchBackend(device, dtype, cuda_graphs)
    except ImportError as error:
        raise BackendMissingError(
            f"the {name} backend cannot be imported on {sys.platform}: {error}. Install it {install_remedy(name)}"
        ) from error
    except (OSError, ValueError) as error:
        # mlx-lm raises the limit of open files when it is imported, and a lower hard limit makes that a ValueError.
        raise BackendMissingError(
            f"the {name} backend refused to start on {sys.platform}: {error}. "
            "Allow at least 4096 open files (`ulimit -Hn`) and try again."
        ) from error


def check_tensors(folder: Path) -> None:
    """Check a target's tensors, by name and shape, against the model that an installed library builds of its config.

    MLX is asked first, as it starts faster, and torch where MLX is not there or does not know the model.

    Raises:
        BackendMissingError: If no library is installed.
        ModelConfigError: If no library that is installed knows the model.
        ModelWeightsError: If tensors are missing, misshapen or not used.
    """
    try:
        load_backend("mlx").check_tensors(folder)
    except (BackendMissingError, ModelConfigError) as error:
        try:
            load_backend("torch").check_tensors(folder)
        except BackendMissingError:
            raise error from None


def open_engine(
    backend: Backend, target: str, drafter: str | None, roots: str | None = None, restoration: str | None = None
) -> Engine:
    """Load a target and a drafter: a DFlash folder, a small model's folder, ``ngram``, or None for no drafting.

    ``mtp`` is the head for several tokens in the target's own folder; ``grpc:ADDRESS`` is a drafter served in another
    process of this machine.

    Several of them, separated by commas, are drafters of which each step asks one; prompt lookup is always among them.
    An f_theta that is named by ``restoration`` reads the one DFlash drafter among them, else the target's own;
    ``grpc:ADDRESS`` is one that makes rows in another process.

    Raises:
        ModelError: If a folder is missing, unusable, the two do not fit each other, or not into the device's memory.
        UsageError: If a drafter is named twice.
    """
    folder = resolve_model(target, roots)
    names = drafter.split(",") if drafter else []
    if len(set(names)) < len(names):
        raise UsageError(f"drafters {', '.join(names)}; expected each once")
    # A missing drafter or host is found before a large target is read.
    served = [name.removeprefix(ELSEWHERE) for name in names if name.startswith(ELSEWHERE)]
    local = [name for name in names if name not in {NGRAM, MTP} and not name.startswith(ELSEWHERE)]
    folders = [resolve_model(name, roots) for name in local]
    hosted = restoration is not None and restoration.startswith(ELSEWHERE)
    host = _restoring_host(str(restoration).removeprefix(ELSEWHERE)) if hosted else None
    if MTP in names:
        read = _loaded(folder, lambda: read_checkpoint(folder))
        _loaded(folder, lambda: check_head(folder, read.config, read.structure))
    _loaded(folder, lambda: check_memory(folder, folders, backend.memory(), head=MTP in names))
    model: TargetModel = _loaded(folder, lambda: backend.load_target(folder))
    loaded = [_loaded(each, partial(_load_drafter, backend, each, (folder, model))) for each in folders]
    restored = None
    if host is not None:
        lent: Any = model
        lent.restorer = backend.restored_elsewhere(host, lent)
        restored = RestorationInfo(host.offer.name, host.offer.digest)
    elif restoration is not None:
        restored = _load_restoration(backend, resolve_model(restoration, roots), (folder, model), loaded)
    loaded += [_loaded(folder, lambda: backend.load_mtp(folder, model))] if MTP in names else []
    loaded += [_served(address, backend, model, folder) for address in served]
    proposer: DrafterModel = NgramModel() if names else NoDrafter()
    if len(names) > 1:
        proposer = several(loaded)
    elif loaded:
        proposer = loaded[0]
    return Engine(
        backend=backend,
        target=model,
        drafter=proposer,
        accept=backend.greedy(model),
        native=backend.native(model),
        folder=folder,
        restoration=restored,
    )


def _loaded(folder: Path, load: Callable[[], Loaded]) -> Loaded:
    """Load a folder; what the libraries underneath trip over in its files is an error of the folder.

    Raises:
        ModelConfigError: If they cannot make sense of it.
    """
    try:
        return load()
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ModelConfigError(f"cannot load {folder}: {type(error).__name__}: {error}; check its files") from error


def _load_restoration(
    backend: Backend, folder: Path, target: tuple[Path, Any], drafters: list[DrafterModel]
) -> RestorationInfo:
    """Let a loaded target restore what it evicts by the f_theta of a folder, and return which that is."""
    reader = next((each for each in drafters if hasattr(each, "context_rows")), None)
    if reader is None:
        own = Path(own_drafter(target[0]))
        reader = _loaded(own, lambda: backend.load_dflash(own, target[1]))
    f_theta = _loaded(folder, lambda: backend.load_restoration(folder, target[1], reader))
    target[1].restorer = f_theta
    return RestorationInfo(folder.name, folder_digest(folder))


def _restoring_host(address: str) -> Any:
    """Return the f_theta that is served at an address.

    Raises:
        BackendMissingError: If gRPC is not installed.
        SessionError: If nobody answers there.
        UsageError: If other machines reach the address.
    """
    with needs_extra("distributed", "gRPC"):
        from engine.distributed.rpc.remote import remote_restoration
    return remote_restoration(address)


def own_drafter(target: Path) -> str:
    """Return the drafter that belongs to a target by name: ``NAME-dflash``, beside it or among the known models.

    Raises:
        UsageError: If there is none.
    """
    drafter = known_drafter(target)
    if drafter is None:
        raise UsageError(
            f"no drafter is known for {model_name(target)!r}: expected one called {_own_name(target)!r} beside it or "
            "among the models. Name one with --drafter, or decode without with --drafter none."
        )
    return drafter


def known_drafter(target: Path) -> str | None:
    """Return the drafter that belongs to a target by name, None where there is none."""
    beside = target.with_name(_own_name(target))
    if (beside / "config.json").is_file():
        return str(beside)
    try:
        return str(resolve_model(beside.name))
    except ModelNotFoundError:
        return None


def own_restoration(target: Path, rank: int) -> str:
    """Return the f_theta of a rank that belongs to a target by name: ``NAME-ftheta64``, beside it or among the models.

    Raises:
        UsageError: If there is none.
    """
    name = f"{model_name(target)}-ftheta{rank}"
    beside = target.with_name(name)
    try:
        return str(beside if (beside / "config.json").is_file() else resolve_model(name))
    except ModelNotFoundError:
        raise UsageError(
            f"no f_theta of rank {rank} is known for {model_name(target)!r}: expected one called {name!r} beside it or "
            "among the models. Name one with --restoration, or fit one: `kakeya-engine train ftheta`."
        ) from None


def _own_name(target: Path) -> str:
    return f"{model_name(target)}-dflash"


def _load_drafter(backend: Backend, folder: Path, target: tuple[Path, TargetModel]) -> DrafterModel:
    """Load what a folder holds: a DFlash network, which names the target layers it reads, or a causal model."""
    config = read_config(folder)
    if is_dflash(config):
        return backend.load_dflash(folder, target[1])
    check_causal(config, model_name(folder))
    small = backend.load_target(folder)
    as_many = small.info.vocab_size == target[1].info.vocab_size
    check_fits(small.info, target[1].info, lambda: _same_words(folder, target[0], unsaid=as_many))
    return DraftModel(small)


def _same_words(first: Path, other: Path, *, unsaid: bool) -> bool:
    """Return whether the tokenizers of two folders give every token the same id; ``unsaid`` where one has none."""
    files = [folder / TOKENIZER for folder in (first, other)]
    if not all(file.is_file() for file in files):
        return unsaid
    if file_digest(files[0]) == file_digest(files[1]):
        return True
    return bool(read_tokenizer(first).get_vocab() == read_tokenizer(other).get_vocab())


def _served(address: str, backend: Backend, target: TargetModel, folder: Path) -> DrafterModel:
    """Return a drafter served in another process, or what stands for one that is away or another target's.

    Raises:
        BackendMissingError: If gRPC is not installed.
        UsageError: If other machines reach the address.
    """
    with needs_extra("distributed", "gRPC"):
        from engine.distributed.away import AwayModel
        from engine.distributed.rpc.remote import found_model
    find = partial(found_model, address, backend, target, folder, SERVED_S)
    try:
        return find()
    except (SessionError, ModelMismatchError) as error:
        return AwayModel(f"{ELSEWHERE}{address}", str(error), find, _expected_capture(folder))


def _expected_capture(target: Path) -> tuple[int, ...]:
    """Return the layers that the drafter which belongs to a target reads, none where there is none."""
    own = known_drafter(target)
    return () if own is None else parse_dflash(read_config(Path(own))).target_layer_ids


def open_random(shape: str, device: str | None = None, dtype: str | None = None, cuda_graphs: str = "auto") -> Engine:
    """Build a torch target with random weights in published shapes, without a drafter: for measuring cost alone.

    Raises:
        BackendMissingError: If torch or the device is not there.
        UsageError: If there is no such shape.
    """
    backend: Any = load_backend("torch", device, dtype, cuda_graphs)
    target = backend.random_target(shape)
    drafter = NoDrafter()
    return Engine(backend, target, drafter, backend.greedy(target), backend.native(target), Path(shape))
