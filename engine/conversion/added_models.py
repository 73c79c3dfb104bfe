"""Models of other people in the engine's own folder: made of a GGUF file or linked, each with a card of its origin.

A GGUF file is read by transformers: its names of tensors, its tokenizer and its template. Weights are unpacked to the
values that they stand for, so that both backends compute with the same numbers; nothing half made is left behind.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from engine.checkpoint import GENERATION_CONFIG, read_object, weight_files
from engine.conversion.gguf_header import GgufHeader, read_header
from engine.conversion.gguf_reading import (
    add_first_token,
    check_positions,
    check_settings,
    check_values,
    drop_prefix_space,
    ends,
    split_words,
)
from engine.conversion.model_sources import Source, check_room, find_source, named_licence, sha256_of
from engine.conversion.scratch import scratch, sweep
from engine.errors import ModelConfigError, ModelWeightsError, UsageError, needs_extra
from engine.reader import read_checkpoint
from engine.structure.decoder import older_names
from engine.structure.families import model_type

CARD: Final = "kakeya-model.json"
DTYPES: Final = ("float32", "bfloat16")
VALUE_BYTES: Final = {"float32": 4, "bfloat16": 2}
MARGIN_BYTES: Final = 1 << 27
"""Room beside the weights: tokenizer, licence and what a disk keeps for itself."""
USUAL_ROOT: Final = "kakeya-models"


@dataclass(frozen=True, slots=True)
class AddedModel:
    """A model that was added.

    Attributes:
        folder: where it lies.
        card: what its card says.
    """

    folder: Path
    card: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of its files, those of linked ones too."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


def usual_root() -> Path:
    """Return where models are added unless told otherwise: the first model root, else the one in the home folder."""
    roots = [root for root in os.environ.get("KAKEYA_MODEL_ROOTS", "").split(os.pathsep) if root]
    return Path(roots[0]) if roots else Path.home() / USUAL_ROOT


def add(
    named: str, root: Path, name: str | None = None, dtype: str | None = None, licence: str | None = None
) -> AddedModel:
    """Add a model to a root.

    Args:
        named: A path, an installed distribution, or a model of the Hugging Face cache.
        root: Folder to add to; made where it is not there.
        name: What to call it; None for what its source does.
        dtype: What unpacked weights are stored and computed in, ``float32`` or ``bfloat16``; None for the first.
        licence: What its licence is, where the source does not say.

    Raises:
        ModelError: If there is no such model, or it cannot be read.
        UsageError: If a name is taken, a dtype is named for a folder that is linked as it is, a licence is missing or
            the disk has no room.
    """
    root.mkdir(parents=True, exist_ok=True)
    sweep(root)
    with scratch(root) as unpacked:
        source = find_source(named, unpacked)
        called = name or source.name
        if not called or called != Path(called).name or called.startswith("."):
            raise UsageError(f"a model cannot be called {called!r}; give it a plain name with --name")
        folder = root / called
        if folder.exists() or folder.is_symlink():
            raise UsageError(f"{folder} is there already; remove it first, or give another name with --name")
        if source.gguf is None and dtype is not None:
            raise UsageError(
                f"{source.origin} is linked as it is, so its weights stay in their own dtype; leave --dtype {dtype} out"
            )
        header = None if source.gguf is None else read_header(source.gguf)
        entries = {} if header is None else header.values
        inside = named_licence(entries.get("general.license"), entries.get("general.license.name"))
        stated = licence or source.licence or inside
        if not stated and not source.texts:
            raise UsageError(
                f"{source.origin} names no licence and holds no file of one; say what it is with --licence, once you "
                "know that you may use it"
            )
        with _whole(root, folder) as making:
            facts = _link(source, making) if header is None else _convert(source, header, making, dtype or DTYPES[0])
            for text in source.texts:
                if not (making / text.name).exists():
                    shutil.copyfile(text, making / text.name)
            card = {
                "name": called,
                "source": source.origin,
                "licence": {"name": stated, "files": sorted(text.name for text in source.texts)},
            } | facts
            read = read_checkpoint(making)
            read.check_tensors()
            card["model_type"] = read.structure.model_type
            (making / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        return AddedModel(folder, card)


@contextmanager
def _whole(root: Path, folder: Path) -> Iterator[Path]:
    """Yield a folder that becomes ``folder`` when nothing went wrong, and is gone otherwise."""
    from safetensors import SafetensorError

    try:
        with scratch(root) as making:
            yield making
            making.chmod(0o755)
            making.rename(folder)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot write the model below {root}: {error}; make room, or name another root") from error


def added(root: Path) -> list[Path]:
    """Return the folders of the models that were added to a root, by name."""
    folders = (card.parent for card in sorted(root.glob(f"*/{CARD}")))
    return [folder for folder in folders if not folder.name.startswith(".")]


def read_card(folder: Path) -> AddedModel:
    """Return the model that was added as a folder.

    Raises:
        ModelConfigError: If its card is none that ``add`` wrote.
    """
    card = read_object(folder / CARD)
    licence = card.get("licence")
    texts = (card.get("source"), card.get("model_type"))
    if (
        not isinstance(licence, dict)
        or not {"name", "files"} <= set(licence)
        or not all(isinstance(text, str) for text in texts)
    ):
        raise ModelConfigError(f"{folder / CARD} does not say source, licence and model_type; expected all of them")
    return AddedModel(folder, card)


def remove(root: Path, name: str) -> Path:
    """Remove a model that was added; files that it only links to stay.

    Raises:
        UsageError: If no model of that name was added.
    """
    folders = {folder.name: folder for folder in added(root)}
    if name not in folders:
        raise UsageError(f"no model {name!r} was added to {root}: it has {', '.join(folders) or 'none'}")
    sweep(root)
    with scratch(root) as leaving:
        # It is gone as a whole, whoever ends this while files are removed.
        folders[name].rename(leaving / name)
        shutil.rmtree(leaving / name)
    return folders[name]


def _link(source: Source, making: Path) -> dict[str, Any]:
    """Link the files of a checkpoint folder, which stay where they are."""
    folder = source.folder
    if folder is None:
        raise ModelWeightsError(f"{source.origin} holds no checkpoint")
    for path in sorted(folder.iterdir()):
        # Each model has a card of its own; through a link the other's would be written over.
        if path.is_file() and path.name != CARD:
            (making / path.name).symlink_to(path.resolve())
        elif path.name == "additional_chat_templates":
            (making / path.name).symlink_to(path.resolve(), target_is_directory=True)
    weight_files(making)
    return {"linked": True}


def _convert(source: Source, header: GgufHeader, making: Path, dtype: str) -> dict[str, Any]:
    """Write the values of a GGUF file as safetensors, with the tokenizer and template that it holds."""
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    file = source.gguf
    if file is None:
        raise ModelWeightsError(f"{source.origin} holds no GGUF file")
    check_positions(file, header)
    check_room(making, header.parameters * VALUE_BYTES[dtype] + MARGIN_BYTES)
    with needs_extra("models", "what reads GGUF files"):
        importlib.import_module("accelerate")  # transformers asks for it
        import torch
        from safetensors.torch import save_file
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as transformers_logging
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    except Exception as error:
        # transformers and gguf raise classes of their own for architectures and packings that they do not read.
        cause = " ".join(str(error).split())[:300]
        raise ModelWeightsError(
            f"transformers cannot read {file.name} ({header.architecture}): {type(error).__name__}: {cause}. Use a "
            "file of another architecture or quantisation"
        ) from error
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills them with random numbers and says so in its log alone.
        raise ModelWeightsError(
            f"{file.name} lacks the tensors {missing[:4]} ({len(missing)} in all) of the "
            f"{header.architecture} model that transformers makes of it. Use a whole file, or the folder of the model"
        )
    text, kind = model.config.get_text_config(), getattr(torch, dtype)
    made = text.to_dict()
    model_type(made)  # what is not decoded here has settings of its own
    check_settings(file, header, made | older_names(made))
    tensors = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not (text.tie_word_embeddings and name == "lm_head.weight")
    }
    check_values(file, header, tensors, text.num_hidden_layers)
    split_words(file, header, tokenizer)
    drop_prefix_space(header, tokenizer)
    add_first_token(header, tokenizer)
    tensors = {name: tensor.to(kind).contiguous() for name, tensor in tensors.items()}
    weights = making / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)  # as readable as the files beside it
    saved = model.config.to_dict() | {"architectures": [type(model).__name__], "dtype": dtype}
    config = {
        name: value for name, value in saved.items() if not name.startswith("_") and name != "quantization_config"
    }
    config |= older_names(config)  # readers that know no rope_parameters would take a base of their own
    (making / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(making)
    stops = ends(header)
    if stops:
        (making / GENERATION_CONFIG).write_text(json.dumps({"eos_token_id": stops}) + "\n", encoding="utf-8")
    return {
        "file": {"name": file.name, "sha256": sha256_of(file), "packed": header.kinds},
        "dtype": dtype,
        "parameters": sum(int(tensor.numel()) for tensor in tensors.values()),
        "sha256": {"model.safetensors": sha256_of(weights)},
        "made_with": {name: version(name) for name in ("gguf", "torch", "transformers")},
    }
